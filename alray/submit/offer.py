"""A small job that offers a folder for download: `python -m alray.submit.offer NAME FOLDER`.

It packs the folder into one file beside the logs of its node, for Ray's dashboard serves what lies there, and deletes
the file when it is asked to stop. So no storage has to be shared with the cluster. A folder on object storage is copied
to the node first.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import tarfile
import time
from pathlib import Path
from typing import IO, Any

from alray.errors import AlrayError
from alray.storage.appended import on_a_disk
from alray.storage.location import Location, location_of
from alray.submit.places import on_this_node

_OFFERED_S = 3600.0


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


def main(name: str, folder: Location) -> int:
    """Pack the folder, print where it lies, and keep it until the job is stopped, for an hour at most."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    # Ray leads standard output to a file in the folder of the logs.
    archive = Path("/proc/self/fd/1").readlink().with_name(f"{name}.tar")
    try:
        if not folder.is_dir():
            _say(missing=str(folder))
            return 1
        with archive.open("wb") as file, on_a_disk(folder) as here:
            summed = _Summed(file)
            _pack(here, summed)
        _say(file=archive.name, bytes=summed.bytes, sha256=summed.sha256)
        time.sleep(_OFFERED_S)
    except OSError as error:
        _say(failed=f"{error.strerror}: {error.filename}")
        return 1
    except AlrayError as error:
        _say(failed=str(error))
        return 1
    finally:
        archive.unlink(missing_ok=True)
    return 0


def _pack(folder: Path, target: Any) -> None:
    """Write the files of a folder. A run that goes on may delete some meanwhile: these are left out."""
    with tarfile.open(mode="w|", fileobj=target, bufsize=1 << 20) as packed:
        for path in sorted(folder.rglob("*")):
            try:
                packed.add(path, arcname=path.relative_to(folder).as_posix(), recursive=False)
            except FileNotFoundError:
                continue


def _say(**content: Any) -> None:
    print(json.dumps({"alray": "offer", **content}), flush=True)  # noqa: T201 - read by `alray.submit.fetch`


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], location_of(on_this_node(sys.argv[2]))))
