"""Fetches the folder of a job through the dashboard: no storage has to be shared with the cluster.

What comes may be a stranger's. It is taken only up to its announced size, and holds nothing but files and folders.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import shlex
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from alray.core.errors import Problem, RequestError, RunError
from alray.report.text import size
from alray.submit.dashboard import Dashboard, Job
from alray.submit.follow import wait_until_ended

_BEGIN_S = 120.0
"""At most so long until the job that packs the folder begins. Packing has no limit."""
_END_S = 20.0
_PAUSE_S = 0.5
_BEGINS = '{"alray": "offer"'
"""How a line of the job begins that is meant for this file."""
_SHOWN = 100
"""Characters of a name that an error shows."""


class _Answer(BaseModel):
    """A line of the job that packs: that it has started, where the packed folder is, or why there is none."""

    alray: Literal["offer"]
    begun: bool | None = None
    file: str | None = None
    bytes: int = Field(0, ge=0, le=1 << 60)
    sha256: str = ""
    failed: dict[str, Any] | None = None


@dataclass(frozen=True)
class Fetched:
    """The files that were fetched, and the number of their bytes."""

    folder: Path
    bytes: int


def fetch(dashboard: Dashboard, job: Job, target: Path, doing: Callable[[str], None]) -> Fetched:
    """Bring the run folder or study folder of a job to `target`, which is new or empty.

    Raises RequestError if the job has not started or `target` is not empty, and RunError if its folder is not there,
    cannot be packed, arrives damaged, or cannot be written here. Then `target` is as empty as before.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RequestError(
            "the folder is not empty", file=str(target), key="--output", hint="choose another folder, by --output"
        )
    try:
        return Fetched(target, _bring(dashboard, job, target.resolve(), doing))
    except OSError as error:
        raise RunError(
            f"the folder could not be written: {error.strerror or error}",
            file=str(target),
            hint="make room, or choose another folder, by --output",
        ) from error


def _bring(dashboard: Dashboard, job: Job, target: Path, doing: Callable[[str], None]) -> int:
    """Fetch the folder, and return the number of bytes that came."""
    target.parent.mkdir(parents=True, exist_ok=True)
    archive = target.with_name(f".{target.name}.tar")
    with _offer(dashboard, job, doing) as (node, offer), ExitStack() as undo:
        doing(f"fetching {size(offer.bytes)}")
        _require_space(offer.bytes, archive.parent)
        undo.callback(archive.unlink, missing_ok=True)
        with archive.open("wb") as file:
            _take(dashboard.file(node, offer.file or ""), offer, file)
        target.mkdir(exist_ok=True)
        with ExitStack() as broken:
            broken.callback(_empty, target)
            try:
                _unpack(archive, target)
            except (tarfile.TarError, ValueError, OverflowError) as error:  # the last two: of wrong numbers in it
                raise _not_offered(f"it cannot be read ({error})") from error
            broken.pop_all()
    return offer.bytes


def _require_space(announced: int, disk: Path) -> None:
    """Raise RunError if a disk has no room for a packed folder of so many bytes and what is in it."""
    free = shutil.disk_usage(disk).free
    if 2 * announced > free:
        raise RunError(
            f"the folder needs {size(2 * announced)} while it is unpacked, and {size(free)} are free",
            file=str(disk),
            hint="make room, or choose another folder, by --output",
        )


def _take(pieces: Iterator[bytes], offer: _Answer, file: IO[bytes]) -> None:
    """Write what comes to a file. Raises RunError if it is not what was announced, as soon as it is more."""
    found, sha256 = 0, hashlib.sha256()
    for piece in pieces:
        found += len(piece)
        if found > offer.bytes:
            raise RunError(f"more than the announced {offer.bytes:,} bytes came", hint="fetch it again")
        file.write(piece)
        sha256.update(piece)
    if (found, sha256.hexdigest()) != (offer.bytes, offer.sha256):
        raise RunError(f"{found:,} bytes came instead of {offer.bytes:,}", hint="fetch it again")


def _unpack(archive: Path, target: Path) -> None:
    """Write the files of a tar file below an empty folder. Raises RunError for anything but files and folders in it:
    through a chain of links tarfile has written outside of the folder before (CVE-2025-4517)."""
    with tarfile.open(archive) as packed:
        for entry in packed:
            if not (entry.isdir() or entry.isreg()) or entry.issparse():
                raise _not_offered(f"`{entry.name[:_SHOWN]}` is neither a file nor a folder")
        packed.extractall(target, filter="data")


def _not_offered(why: str) -> RunError:
    return RunError(
        f"the packed folder is not one that alray packed: {why}",
        hint="look at the folder on the cluster: alray fetches only files and folders, and no links",
    )


def _empty(folder: Path) -> None:
    """Delete what is in a folder: half of a run would look like a run."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def _offer(dashboard: Dashboard, job: Job, doing: Callable[[str], None]) -> Iterator[tuple[str, _Answer]]:
    """Run the job that offers the folder on the node where it lies, until the block ends."""
    folder = job.require_result()
    if job.node is None:
        raise RequestError(f"the job `{job.id}` has not started", key="ID", hint="fetch its folder later")
    name = f"alray-fetch-{secrets.token_hex(6)}"
    command = shlex.join(["python", "-m", "alray.submit.offer", name, folder])
    dashboard.submit(name, command, {"alray": "fetch", "of": job.id}, runtime_env={}, node=job.node)
    try:
        _answer(dashboard, name, "begun", _BEGIN_S)
        doing("packing the folder on the cluster")
        yield job.node, _answer(dashboard, name, "file", math.inf)
    finally:
        # It is not deleted: Ray would list a deleted job again, as failed.
        dashboard.stop(name)
        wait_until_ended(dashboard, name, _END_S)


def _answer(dashboard: Dashboard, name: str, key: Literal["begun", "file"], timeout_s: float) -> _Answer:
    """The line of the job that has this key. Raises RunError if the job fails, or ends or takes too long without it,
    and if a line is none that it writes."""
    until_s = time.monotonic() + timeout_s
    while True:
        ended = dashboard.job(name).ended
        log = dashboard.log(name)
        for line in log.split("\n")[:-1]:  # the last one may still be written
            if line.startswith(_BEGINS):
                try:
                    answer = _Answer.model_validate_json(line)
                    failed = answer.failed and Problem.from_json(answer.failed)
                except (ValidationError, TypeError, KeyError) as error:
                    raise RunError(
                        "the job that packs the folder wrote a line that alray does not write",
                        hint=f"read it: `ray job logs {name}`",
                    ) from error
                if failed:
                    raise RunError.of((failed,))
                if getattr(answer, key) is not None:
                    return answer
        if ended or time.monotonic() > until_s:
            last = log.strip().splitlines()[-1:] or ["the job did not begin"]
            raise RunError(
                f"the folder could not be packed on the cluster: {last[0]}",
                hint="look at the cluster: `ray status` says what is free",
            )
        time.sleep(_PAUSE_S)
