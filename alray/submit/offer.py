"""A small job that offers a folder for download: `python -m alray.submit.offer NAME FOLDER`.

It packs the folder into one file next to the logs of its node, for Ray's dashboard serves what lies there, and deletes
the file when it is asked to stop. So no storage has to be shared with the cluster. A folder on object storage is copied
to the node first.

It prints a line of JSON when it has started, and one when the file is there. A line with `failed` is a problem.
"""

from __future__ import annotations

import errno
import hashlib
import json
import platform
import shutil
import signal
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from alray.core.errors import AlrayError, Problem, RequestError, RunError
from alray.core.storage.appended import on_a_disk
from alray.core.storage.location import Location, location_of
from alray.report.text import size
from alray.submit.locations import on_this_node

_OFFERED_S = 3600.0
_HEADER_BYTES = 1024
"""At most so much a tar file takes for a file besides its content, and once more at its end."""


class _Summed:
    """A file that is written once from its beginning, with the SHA-256 of what was written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sum = hashlib.sha256()
        self.bytes = 0

    def write(self, data: bytes) -> int:
        self._sum.update(data)
        self.bytes += len(data)
        return self._file.write(data)

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()


def main(archive: Path, folder: Location) -> int:
    """Pack the folder into `archive`, and keep that until the job is stopped, for an hour at most."""
    _say(begun=True)
    try:
        if not folder.is_dir():
            raise RequestError(
                f"there is no folder `{folder}` on {platform.node()}",
                key="ID",
                hint="if the job ended before it made one, `ray job logs` says why",
            )
        with on_a_disk(folder) as here:
            _require_space(here, archive.parent)
            with archive.open("wb") as file:
                summed = _Summed(file)
                _pack(here, summed)
        _say(file=archive.name, bytes=summed.bytes, sha256=summed.sha256)
        time.sleep(_OFFERED_S)
    except AlrayError as error:
        return _failed(error.problems[0])
    except OSError as error:
        return _failed(_problem(error))
    finally:
        archive.unlink(missing_ok=True)
    return 0


def _require_space(folder: Path, disk: Path) -> None:
    """Raise RunError if a disk has no room for the packed folder."""
    needed = _HEADER_BYTES
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a run in progress has deleted it
            needed += path.lstat().st_size + _HEADER_BYTES
    free = shutil.disk_usage(disk).free
    if needed > free:
        raise RunError(
            f"the packed folder needs {size(needed)} besides Ray's logs on {platform.node()}; {size(free)} are free",
            hint=f"make room on the disk of {disk}",
        )


def _problem(error: OSError) -> Problem:
    """tarfile raises some without an errno, and without a file."""
    of_file = f": {error.filename}" if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return Problem(
        f"the folder could not be packed on {platform.node()}: {error.strerror or error}{of_file}",
        "make room there" if full else "correct the cause there, and fetch again",
    )


def _failed(problem: Problem) -> int:
    _say(failed=problem.as_json())
    return 1


def _pack(folder: Path, target: Any) -> None:
    """Write the files of a folder. A run in progress may delete some meanwhile: these are left out."""
    with tarfile.open(mode="w|", fileobj=target, bufsize=1 << 20) as packed:
        for path in sorted(folder.rglob("*")):
            try:
                packed.add(path, arcname=path.relative_to(folder).as_posix(), recursive=False)
            except FileNotFoundError:
                continue


def _say(**content: Any) -> None:
    print(json.dumps({"alray": "offer", **content}), flush=True)  # noqa: T201 - read by `alray.submit.fetch`


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    # Ray leads standard output to a file in the folder of the logs.
    logs = Path("/proc/self/fd/1").readlink().parent
    sys.exit(main(logs / f"{sys.argv[1]}.tar", location_of(on_this_node(sys.argv[2]))))
