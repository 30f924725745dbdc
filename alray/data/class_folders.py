"""Folders that contain one subfolder for each class, and which of their files are hidden."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable
from pathlib import Path

from alray.core.counting import counted
from alray.core.errors import DataError, DataMissing, printable
from alray.data.columns import plain

_OF_WINDOWS = ("Thumbs.db", "desktop.ini")


def class_folders(folder: Path, key: str, *, holding: str, passed_over: Collection[str] = ()) -> list[Path]:
    """Return the subfolders, sorted by name, without hidden ones and those in `passed_over`.

    key (of the spec) and holding (what the subfolders contain, such as "pictures") are used in messages. Raises
    DataError if the folder does not exist or has no subfolders.
    """
    if not folder.is_dir():
        raise DataMissing(
            "folder not found",
            file=str(folder),
            key=key,
            hint="give a folder with one subfolder for each class",
        )
    found = sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and not is_hidden(entry, folder) and entry.name not in passed_over
    )
    if not found:
        raise DataError(
            "the folder has no subfolders",
            file=str(folder),
            key=key,
            hint=f"put the {holding} of each class in a subfolder named after it",
        )
    name, times = Counter(map(class_of, found)).most_common(1)[0]
    if times > 1:
        raise DataError(
            f"two folders have names that look equal, `{name}`", file=str(folder), key=key, hint="rename one of them"
        )
    return found


def class_of(subfolder: Path) -> str:
    """The name of the class that a subfolder is named after."""
    return printable(plain(subfolder.name))


def require_known(subfolder: Path, classes: tuple[str, ...], key: str) -> int:
    """Return the number of the class that a subfolder is named after. Raises DataError if there is no such class."""
    name = class_of(subfolder)
    if name not in classes:
        raise DataError(
            f"class `{name}` is not a training class ({', '.join(classes)})",
            file=str(subfolder),
            key=key,
            hint="use the same names of subfolders for all sets",
        )
    return classes.index(name)


def require_files(found: list[Path], subfolder: Path, key: str, *, holding: str) -> list[Path]:
    """Return the files found in a subfolder, sorted. Raises DataError if there are none."""
    if not found:
        others = sorted(path.name for path in subfolder.glob("*") if not is_hidden(path, subfolder))
        raise DataError(
            f"the class has no {holding}" + (f": `{printable(others[0])}` is none" if others else ""),
            file=str(subfolder),
            key=key,
            hint=f"put {holding} into the folder, or remove it",
        )
    return sorted(found)


def is_hidden(path: Path, folder: Path) -> bool:
    """Whether a file in `folder` is hidden, or is in a hidden folder below: copies that Jupyter makes, what macOS adds
    (`._a.txt`), or `.git`. Windows adds files that are hidden there."""
    return path.name in _OF_WINDOWS or any(part.startswith(".") for part in path.relative_to(folder).parts)


def left_out(folder: Path, subfolders: Collection[Path], files: Iterable[Path], *, wanted: str) -> tuple[str, ...]:
    """Sentences about what lies in a folder of classes and is no file of the data: a number and an example for each
    reason; none if there is nothing. Raises OSError for a folder that cannot be read.

    Args:
        subfolders: of its classes.
        files: those of the data.
        wanted: what is a file of the data, for messages.
    """
    taken, others = set(map(str, files)), dict[str, list[Path]]()
    paths = [path for path in folder.iterdir() if path not in subfolders]
    for subfolder in subfolders:
        for place, folders, names in os.walk(subfolder, onerror=_raise):
            within = (f"{place}/{name}" for name in (*folders, *names))
            paths += [Path(path) for path in within if path not in taken]
    for path in paths:
        if is_hidden(path, folder):
            continue
        if path.is_symlink() and not path.is_file():
            others.setdefault("a link to a folder" if path.is_dir() else "a link that leads nowhere", []).append(path)
        elif not path.is_dir():
            others.setdefault(f"not {wanted}", []).append(path)
    number = counted(len(taken) + sum(map(len, others.values())), "file")
    return tuple(
        f"{folder}: {len(found):,} of {number} left out, such as `{printable(str(min(found).relative_to(folder)))}`: "
        f"{reason}"
        for reason, found in others.items()
    )


def _raise(error: OSError) -> None:
    raise error
