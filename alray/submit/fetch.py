"""Fetches the folder of a job through the dashboard: no storage has to be shared with the cluster."""

from __future__ import annotations

import hashlib
import json
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
from typing import Any

from alray.errors import Problem, RequestError, RunError
from alray.report.text import size
from alray.submit.dashboard import Dashboard, Job
from alray.submit.follow import wait_until_ended

_BEGIN_S = 120.0
"""At most so long until the job that packs the folder begins. Packing has no limit."""
_END_S = 20.0
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Fetched:
    """What was fetched, and the number of its bytes."""

    folder: Path
    bytes: int


def fetch(dashboard: Dashboard, job: Job, target: Path, doing: Callable[[str], None]) -> Fetched:
    """Bring the run folder or study folder of a job to `target`, which is new or empty.

    Raises RequestError if the job has not begun or `target` is not empty, and RunError if its folder is not there,
    cannot be packed, arrives damaged, or cannot be written here. Then `target` is as empty as before.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RequestError("the folder is not empty", file=str(target), key="--to", mend="choose another --to")
    try:
        return Fetched(target, _bring(dashboard, job, target.resolve(), doing))
    except OSError as error:
        raise RunError(
            f"the folder could not be written: {error.strerror or error}",
            file=str(target),
            mend="make room, or choose another --to",
        ) from error


def _bring(dashboard: Dashboard, job: Job, target: Path, doing: Callable[[str], None]) -> int:
    """Fetch the folder, and return the number of bytes that came."""
    target.parent.mkdir(parents=True, exist_ok=True)
    archive = target.with_name(f".{target.name}.tar")
    with _offer(dashboard, job, doing) as (node, offer), ExitStack() as undo:
        doing(f"fetching {size(offer['bytes'])}")
        found, sha256 = 0, hashlib.sha256()
        undo.callback(archive.unlink, missing_ok=True)
        with archive.open("wb") as file:
            for piece in dashboard.file(node, offer["file"]):
                file.write(piece)
                sha256.update(piece)
                found += len(piece)
        if (found, sha256.hexdigest()) != (offer["bytes"], offer["sha256"]):
            raise RunError(f"{found:,} bytes came instead of {offer['bytes']:,}", mend="fetch it again")
        target.mkdir(exist_ok=True)
        with ExitStack() as broken, tarfile.open(archive) as packed:
            broken.callback(_empty, target)
            packed.extractall(target, filter="data")
            broken.pop_all()
    return found


def _empty(folder: Path) -> None:
    """Delete what is in a folder: half of a run would look like a run."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def _offer(dashboard: Dashboard, job: Job, doing: Callable[[str], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the job that offers the folder on the node where it lies, until the block ends."""
    folder = job.require_result()
    if job.node is None:
        raise RequestError(f"the job `{job.id}` has not begun", key="ID", mend="fetch its folder later")
    name = f"alray-fetch-{secrets.token_hex(6)}"
    command = shlex.join(["python", "-m", "alray.submit.offer", name, folder])
    dashboard.submit(name, command, {"alray": "fetch", "of": job.id}, runtime_env={}, node=job.node)
    try:
        _said(dashboard, name, "begun", _BEGIN_S)
        doing("packing the folder on the cluster")
        yield job.node, _said(dashboard, name, "file", math.inf)
    finally:
        # It is not deleted: Ray would list a deleted job again, as failed.
        dashboard.stop(name)
        wait_until_ended(dashboard, name, _END_S)


def _said(dashboard: Dashboard, name: str, key: str, timeout_s: float) -> dict[str, Any]:
    """The line of the job that has this key. Raises RunError if the job fails, or ends or takes too long without it."""
    until_s = time.monotonic() + timeout_s
    while True:
        ended = dashboard.job(name).ended
        log = dashboard.log(name)
        for line in log.splitlines():
            if line.startswith('{"alray": "offer"'):
                said: dict[str, Any] = json.loads(line)
                if "failed" in said:
                    raise RunError.of((Problem.from_json(said["failed"]),))
                if key in said:
                    return said
        if ended or time.monotonic() > until_s:
            last = log.strip().splitlines()[-1:] or ["the job did not begin"]
            raise RunError(
                f"the folder could not be packed on the cluster: {last[0]}",
                mend="look at the cluster: `ray status` says what is free",
            )
        time.sleep(_PAUSE_S)
