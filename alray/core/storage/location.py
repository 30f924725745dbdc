"""The location of a run folder, and operations that differ between a disk and object storage.

A `Location` has methods of pathlib. The functions here do what pathlib has no method for: publish a file whole, delete
a folder, and lend a folder of this machine to what can only use one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from alray.core.errors import CheckpointError, RequestError
from alray.core.storage import disk
from alray.core.storage.objects import SCHEMES, ObjectPath

_MOST_NAMED = 10
"""Symbolic links that one error names."""

Location: TypeAlias = Path | ObjectPath
"""A file or a folder, on a disk that this machine sees or on object storage."""


def location_of(text: str | Location) -> Location:
    """The location that a path or a URL names: s3://, gs:// and abfs:// are object storage, file:// is a path.

    Raises RequestError for a URL with one slash, which would name a folder `s3:` of this machine.
    """
    if not isinstance(text, str):
        return text
    scheme, _, rest = text.partition(":/")
    if names_a_scheme(text) and not rest.startswith("/"):
        raise RequestError(
            "this URL has one slash after its scheme",
            file=text,
            hint=f"write {scheme}://{'/' if scheme == 'file' else ''}{rest}",
        )
    if "://" not in text:
        return Path(text)
    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    return ObjectPath(text.rstrip("/"))


def names_a_scheme(text: str) -> bool:
    """Whether a text begins as a URL that alray knows, also where pathlib has made one slash of its two."""
    scheme, colon, _ = text.partition(":/")
    return bool(colon) and scheme in ("file", *SCHEMES)


def publish(file: Location, content: bytes) -> None:
    """Write a file in one step. When this returns, it outlasts a power cut. A reader finds the whole old file or the
    whole new one, never a part."""
    if isinstance(file, ObjectPath):
        file.write_bytes(content)
    else:
        disk.publish(file, content)


def sync_folder(folder: Location) -> None:
    """Wait until the names in a folder outlast a power cut. Object storage keeps what it has answered."""
    if isinstance(folder, Path):
        disk.sync_folder(folder)


def sync_below(folder: Location) -> None:
    """Wait until a folder, if it is there, outlasts a power cut with all that is in it."""
    if isinstance(folder, Path):
        disk.sync_below(folder)


def remove_file(file: Location) -> None:
    """Delete a file, if it is there."""
    if isinstance(file, ObjectPath):
        file.unlink(missing_ok=True)
    else:
        disk.remove_file(file)


def remove_folder(folder: Location) -> None:
    """Delete a folder and all that is in it."""
    if isinstance(folder, ObjectPath):
        folder.remove()
    else:
        disk.remove_folder(folder)


def require_no_links(folder: Location, *, itself: bool = False) -> None:
    """Raise RequestError if there is a symbolic link below a folder. Where it leads to, alray would write and delete.

    Args:
        itself: whether the folder must not be a link either. Each command that writes into a folder that was there
            before asks this first: another user may have made it.
    """
    if not isinstance(folder, Path):
        return
    found = [folder] if itself and folder.is_symlink() else []
    found += [
        Path(here, name)
        for here, folders, files in os.walk(folder)
        for name in (*folders, *files)
        if Path(here, name).is_symlink()
    ]
    if found:
        links = sorted(found)[:_MOST_NAMED]
        named = ", ".join(f"{link.relative_to(folder.parent)} -> {link.readlink()}" for link in links)
        more = f" and {len(found) - _MOST_NAMED:,} more" if len(found) > _MOST_NAMED else ""
        raise RequestError(
            f"nothing is written through symbolic links: {named}{more}",
            file=str(folder),
            hint="replace them by the files that they lead to, or delete them",
        )


def require_file(file: Location) -> None:
    """Raise CheckpointError if a folder, a pipe or a device lies where a file is expected, or is where a link leads.

    Reading a pipe or a device may never end. A file that is missing raises nothing here.
    """
    if isinstance(file, Path) and file.exists() and not file.is_file():
        raise CheckpointError(
            "this is a folder, a pipe or a device, not a file",
            file=str(file),
            hint="another program changed this folder; restore the file",
        )


@contextmanager
def local_folder_for(folder: Location) -> Iterator[Path]:
    """Give a local folder to write into. When the block ends, its files are stored at `folder`."""
    if isinstance(folder, Path):
        yield folder
        return
    with TemporaryDirectory() as scratch:
        yield Path(scratch)
        for file in sorted(path for path in Path(scratch).rglob("*") if path.is_file()):
            (folder / file.relative_to(scratch).as_posix()).write_bytes(file.read_bytes())


def user_cache() -> Path:
    """$XDG_CACHE_HOME/alray, or ~/.cache/alray: what can be made again. Raises RuntimeError if the user has no home
    folder."""
    return _of_user("XDG_CACHE_HOME", ".cache")


def user_state() -> Path:
    """$XDG_STATE_HOME/alray, or ~/.local/state/alray: what alray keeps for the user. Raises RuntimeError as
    `user_cache`."""
    return _of_user("XDG_STATE_HOME", ".local/state")


def _of_user(variable: str, otherwise: str) -> Path:
    """The folder of alray in one of the user's base folders; one that is relative does not count.

    Source: XDG Base Directory Specification.
    """
    base = Path(os.environ.get(variable, ""))
    return (base if base.is_absolute() else Path.home() / otherwise) / "alray"
