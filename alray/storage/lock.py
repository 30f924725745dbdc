"""One process at a time works on a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from alray.errors import RequestError
from alray.storage.location import Location, require_no_links

LOCK = ".lock"
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def held(folder: Location, note: Callable[[str], None], what: str = "run") -> Iterator[None]:
    """Let no other process work on a folder until the block ends. The lock also ends if this process is killed.

    Object storage has no locks, so there it does nothing. note: takes a line if the file system has no locks. what: is
    in the folder, for messages. Raises RequestError if another process holds the folder. Processes that this one starts
    do not inherit the lock. Raises RequestError also as `require_no_links`.
    """
    if not isinstance(folder, Path):
        yield
        return
    require_no_links(folder)
    with ExitStack() as stack:
        file = folder / LOCK
        lock = stack.enter_context(file.open("a+", encoding="utf-8"))
        while not _has(lock, file, note, what):  # who held it has deleted the file
            lock = stack.enter_context(file.open("a+", encoding="utf-8"))
        try:
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}")
            lock.flush()
            yield
        finally:
            with suppress(OSError):  # a folder that is gone, or can no longer be written, is reported elsewhere
                file.unlink()


def is_held(folder: Path) -> bool:
    """Whether a process holds a folder. Where the file system has no locks, nobody does."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in (errno.ENOENT, *_WITHOUT_LOCKS):
            raise
    return False


def _has(lock: TextIO, file: Path, note: Callable[[str], None], what: str) -> bool:
    """Take the lock on an open file; return whether it is still the file of this name."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        holder = lock.read()
        raise RequestError(
            f"another process works on this {what}{f': {holder}' if holder else ''}",
            file=str(file.parent),
            hint="wait until it has ended, or stop it",
        ) from error
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        note(f"{file.parent} is on a file system without locks: let no second process work on this {what}")
    try:
        return os.path.samestat(os.fstat(lock.fileno()), file.stat())
    except FileNotFoundError:
        return False
