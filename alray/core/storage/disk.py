"""Changes of files on a disk, in an order that a power cut keeps.

Whatever a later reader depends on is written by these functions: a run folder, a study folder, an exported route. What
a system has been handed is not on the disk yet. After a power cut files may be empty, cut off or hold zeros, and names
may be old, unless the file and the folder that has its name were synced (`fsync`).

Each change is one call of `os`. So a test can record all changes of a run, or let any of them fail.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"
"""So the names of files end that are not whole yet."""
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
"""So some file systems answer that cannot sync a folder."""


def publish(file: Path, content: bytes) -> None:
    """Write a file in one step. When this returns, it outlasts a power cut. A reader finds the whole old file or the
    whole new one, never a part."""
    write_whole(file, content)
    sync_folder(file.parent)


def write_whole(file: Path, content: bytes) -> None:
    """As `publish`, but the name of the file outlasts a power cut only after `sync_folder`."""
    partial = file.with_name(f"{file.name}.{os.getpid()}{PARTIAL}")  # two processes may write the same file
    try:
        with _opened(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
            write_all(descriptor, content, partial)
            sync(descriptor, partial)
        os.replace(partial, file)  # noqa: PTH105 - every change is a call of `os`
    except BaseException:
        with suppress(OSError):  # what failed first is the cause to report
            remove_file(partial)
        raise


def publish_written(partial: Path, file: Path) -> None:
    """As `publish`, for a file or a folder that a library has written under another name in the same folder. A folder
    is not there yet under the name that it gets."""
    if partial.is_dir():
        sync_below(partial)
    else:
        sync_file(partial)
    os.replace(partial, file)  # noqa: PTH105
    sync_folder(file.parent)


def write_all(descriptor: int, content: bytes, file: Path) -> None:
    """Write all of the content.

    Args:
        file: its name, for errors.
    """
    left = memoryview(content)
    with _named(file):
        while left:
            left = left[os.write(descriptor, left) :]


def sync(descriptor: int, file: Path) -> None:
    """Wait until what was written is on the disk.

    Args:
        file: its name, for errors.
    """
    with _named(file):
        os.fsync(descriptor)


def sync_file(file: Path) -> None:
    """Wait until the content of a file is on the disk."""
    with _opened(file, os.O_RDONLY) as descriptor:
        sync(descriptor, file)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    with _opened(folder, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        try:
            sync(descriptor, folder)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise


def sync_below(folder: Path) -> None:
    """Wait until a folder is on the disk with all that is in it, whoever wrote it."""
    if not folder.is_dir():
        return
    for below, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(below, name))
        sync_folder(Path(below))
    sync_folder(folder.parent)


def make_folder(folder: Path) -> bool:
    """Make a folder where its parent is; return whether it was not there. Its name outlasts a power cut only after
    `sync_folder` of its parent."""
    try:
        os.mkdir(folder)  # noqa: PTH102
    except FileExistsError:
        if not folder.is_dir():
            raise
        return False
    return True


def make_folders(folder: Path) -> bool:
    """Make a folder and those above it; return whether it was not there. It outlasts a power cut."""
    if folder.is_dir():
        return False
    if folder.parent != folder:
        make_folders(folder.parent)
    made = make_folder(folder)
    sync_folder(folder.parent)
    return made


def cut(file: Path, size: int) -> None:
    """Cut a file off after so many bytes. The cut outlasts a power cut, so that nothing new is mixed with the rest."""
    with _opened(file, os.O_WRONLY) as descriptor:
        with _named(file):
            os.ftruncate(descriptor, size)
        sync(descriptor, file)


def open_to_append(file: Path) -> int:
    """A file descriptor to append to a file, which is made if it is missing. Its name outlasts a power cut only after
    `sync_folder`."""
    return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def remove_file(file: Path) -> None:
    """Delete a file, if it is there."""
    with suppress(FileNotFoundError):
        os.unlink(file)  # noqa: PTH108


def remove_folder(folder: Path) -> None:
    """Delete a folder and all that is in it. Of a link only the link is deleted."""
    if folder.is_symlink():
        remove_file(folder)
        return
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                remove_folder(Path(entry.path))
            else:
                remove_file(Path(entry.path))
    os.rmdir(folder)  # noqa: PTH106


@contextmanager
def _opened(file: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(file, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Name the file in an error of a call that knows only its descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(file)
        raise
