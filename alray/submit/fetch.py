"""Fetches the folder of a job through the dashboard: no storage has to be shared with the cluster."""

from __future__ import annotations

import hashlib
import json
import secrets
import shlex
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alray.errors import RequestError, RunError
from alray.submit.dashboard import Dashboard, Job
from alray.submit.follow import wait_until_ended

_BEGIN_S = 120.0
_END_S = 20.0


@dataclass(frozen=True)
class Fetched:
    """What was fetched, and the number of its bytes."""

    folder: Path
    bytes: int


def fetch(dashboard: Dashboard, job: Job, target: Path, doing: Callable[[str], None]) -> Fetched:
    """Bring the run folder or study folder of a job to `target`, which is new or empty.

    Raises RequestError if there is nothing to fetch, and RunError if what arrives is not what was sent.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RequestError("the folder is not empty", file=str(target), key="--to", mend="choose another --to")
    target.parent.mkdir(parents=True, exist_ok=True)
    archive = target.with_name(f".{target.name}.tar")
    with _offer(dashboard, job, doing) as (node, offer):
        doing(f"fetching {offer['bytes'] / 1e6:.1f} MB")
        found, sha256 = 0, hashlib.sha256()
        try:
            with archive.open("wb") as file:
                for piece in dashboard.file(node, offer["file"]):
                    file.write(piece)
                    sha256.update(piece)
                    found += len(piece)
            if (found, sha256.hexdigest()) != (offer["bytes"], offer["sha256"]):
                raise RunError(f"{found:,} bytes came instead of {offer['bytes']:,}", mend="fetch it again")
            with tarfile.open(archive) as packed:
                packed.extractall(target, filter="data")
        finally:
            archive.unlink(missing_ok=True)
    return Fetched(target, found)


@contextmanager
def _offer(dashboard: Dashboard, job: Job, doing: Callable[[str], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the job that offers the folder on the node where it lies, until the block ends."""
    folder = job.require_result()
    if job.node is None:
        raise RequestError(f"the job `{job.id}` has not begun", key="ID", mend="fetch its folder later")
    name = f"alray-fetch-{secrets.token_hex(6)}"
    doing("packing the folder on the cluster")
    command = shlex.join(["python", "-m", "alray.submit.offer", name, folder])
    dashboard.submit(name, command, {"alray": "fetch", "of": job.id}, runtime_env={}, node=job.node)
    try:
        offer = _answer(dashboard, name)
        if "missing" in offer:
            raise RequestError(
                f"the job `{job.id}` has no folder `{offer['missing']}`",
                key="ID",
                mend="it ended before it made one: `alray jobs logs` says why",
            )
        if "failed" in offer:
            raise RunError(f"the folder could not be packed on the cluster: {offer['failed']}", mend="make room there")
        yield job.node, offer
    finally:
        dashboard.stop(name)
        if wait_until_ended(dashboard, name, _END_S).ended:
            dashboard.delete(name)


def _answer(dashboard: Dashboard, name: str) -> dict[str, Any]:
    """What the job says about the folder."""
    until_s = time.monotonic() + _BEGIN_S
    while True:
        ended = dashboard.job(name).ended
        log = dashboard.log(name)
        for line in log.splitlines():
            if line.startswith('{"alray": "offer"'):
                offer: dict[str, Any] = json.loads(line)
                return offer
        if ended or time.monotonic() > until_s:
            said = log.strip().splitlines()
            raise RunError(
                f"the folder could not be packed on the cluster: {said[-1] if said else 'the job did not begin'}",
                mend="look at the cluster: `ray status` says what is free",
            )
        time.sleep(0.3)
