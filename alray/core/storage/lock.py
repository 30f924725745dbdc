"""One process at a time works on a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from alray.core.errors import RequestError
from alray.core.storage.location import Location, require_no_links

LOCK = ".lock"
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_RETRY_S = 0.2
"""How long to try: a holder may be just deleting the file, or `is_held` look at it."""


@contextmanager
def locked(folder: Location, note: Callable[[str], None], what: str = "run") -> Iterator[None]:
    """Let no other process work on a folder until the block ends. The lock also ends if this process is killed.

    Object storage has no locks, so there it does nothing.

    Raises RequestError if another process holds the folder. Processes that this one starts do not inherit the lock.
    Raises RequestError also as `require_no_links`.

    Args:
        note: takes a line if the file system has no locks.
        what: is in the folder, for messages.
    """
    if not isinstance(folder, Path):
        yield
        return
    require_no_links(folder)
    file = folder / LOCK
    lock = FileLock(file, timeout=_RETRY_S, thread_local=False, fallback_to_soft=False, on_acquired=_sign)
    try:
        lock.acquire()
    except Timeout as error:
        holder = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        raise RequestError(
            f"another process works on this {what}{f': {holder}' if holder else ''}",
            file=str(folder),
            hint="wait until it has ended, or stop it",
        ) from error
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        note(f"{folder} is on a file system without locks: let no second process work on this {what}")
    try:
        yield
    finally:
        with suppress(OSError):  # a folder that is gone, or can no longer be written, is reported where it is used
            file.unlink()
        lock.release()


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


def _sign(descriptor: int) -> None:
    """Write who holds a lock into its file."""
    os.truncate(descriptor, 0)
    os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
