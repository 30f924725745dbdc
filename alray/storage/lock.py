"""One process at a time works on a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from alray.errors import RequestError
from alray.storage.location import Location

LOCK = ".lock"
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def held(folder: Location, what: str, note: Callable[[str], None]) -> Iterator[None]:
    """Hold a folder on a disk until the block ends, or this process. Object storage has no locks: nothing is held.

    what: is in the folder, for messages. note: takes a line if the file system has no locks. Raises RequestError if
    another process holds the folder. Processes that this one starts do not inherit the lock.
    """
    if not isinstance(folder, Path):
        yield
        return
    with (folder / LOCK).open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            holder = lock.read()
            raise RequestError(
                f"another process works on this {what}{f': {holder}' if holder else ''}",
                file=str(folder),
                mend="wait until it has ended, or stop it",
            ) from error
        except OSError as error:
            if error.errno not in _WITHOUT_LOCKS:
                raise
            note(f"{folder} is on a file system without locks: no second process may work on this {what} meanwhile")
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        yield
