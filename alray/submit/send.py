"""Sends a run to a cluster that has room for it: a new one with its package, or one to continue with."""

from __future__ import annotations

import secrets
import shlex
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alray import __version__
from alray.config.sections.spec import Spec
from alray.core.errors import RequestError
from alray.runtime.cluster.room import require_room
from alray.runtime.runner.engines import stage_bundles
from alray.submit.dashboard import Dashboard
from alray.submit.locations import FOLDER, PACKAGES, is_location, is_url
from alray.submit.package import package

_HOW_TO_STOP = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "60"}
"""How Ray stops a job: it sends this signal, and SIGKILL after so many seconds. Ray's values are SIGTERM and 3.

Ray handles SIGTERM in the process of a study, which would end without a report. A checkpoint may take longer than 3 s.
"""
_BEGINNING_S = 20.0
"""So long a head may take from its first answer until it lists its node."""
_ASK_AGAIN_S = 0.5


@dataclass(frozen=True)
class Sent:
    """A job that was submitted.

    Attributes:
        result: the run folder or study folder, on the cluster or on object storage.
    """

    id: str
    result: str


def send(
    dashboard: Dashboard,
    spec: Path,
    overrides: Sequence[str],
    *,
    folder: str | None,
    include: Sequence[Path],
    allow_code: bool,
) -> Sent:
    """Submit a spec or a study.

    Raises SpecError if the spec is wrong, RequestError if it cannot be sent, and PlanError if the cluster is too small.

    Args:
        folder: where the run folder is made. It has the ID of the job as its name.
    """
    parent = (folder or FOLDER).rstrip("/")
    if not is_location(parent):
        raise RequestError("the folder on the cluster is not absolute", key="--output", hint="begin it with / or ~")
    packed = package(spec, overrides, include, allow_code=allow_code)
    if is_url(parent) and packed.command == "study":
        raise RequestError(
            "a study needs a folder on a disk", key="--output", hint="give a path that all nodes of the cluster see"
        )
    require_room_for(packed.specs, dashboard)
    job_id = _new_id(packed.name)
    result = f"{parent}/{job_id}"
    # What is sent has to lie on a disk.
    package_dir = f"{FOLDER if is_url(parent) else parent}/{PACKAGES}/{job_id}"
    words = [packed.command, package_dir, result, packed.inside(packed.spec), *overrides]
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "package.zip"
        packed.write(archive)
        _submit(dashboard, job_id, words, packed.command, result, allow_code, working_dir=str(archive))
    return Sent(job_id, result)


def send_resume(dashboard: Dashboard, run: str, overrides: Sequence[str], *, allow_code: bool) -> Sent:
    """Submit a job that continues a run or a study.

    Args:
        run: the id of its last job, or its folder.

    Raises:
        RequestError: if a job still writes to that folder, or if the job is none of alray's.
    """
    result = run.rstrip("/") if is_location(run) else dashboard.job(run).require_result()
    known = [job for job in dashboard.jobs() if job.metadata.get("result") == result]
    for job in known:
        if not job.ended:
            raise RequestError(
                f"the job `{job.id}` has not ended, and writes to {result}",
                key="--resume",
                hint=f"wait for its end, or stop it: `ray job stop {job.id}`",
            )
    # Whether the folder of another cluster's job is that of a run or of a study is known only there.
    command = known[0].metadata["alray"] if known else "resume"
    job_id = _new_id("resume")
    _submit(dashboard, job_id, ["resume", result, *overrides], command, result, allow_code)
    return Sent(job_id, result)


def require_room_for(specs: Iterable[Spec], dashboard: Dashboard) -> None:
    """Raise PlanError if the nodes could not hold the stages of one of these specs, each alone on the cluster.

    Raises RequestError if the cluster has no node, even after a while: a head that has just started lists itself late.
    """
    nodes = dashboard.nodes()
    until = time.monotonic() + _BEGINNING_S
    while not nodes:
        if time.monotonic() > until:
            raise RequestError(
                "the cluster has no node yet",
                key="--address",
                hint="wait until `ray status` shows its nodes, then submit again",
            )
        time.sleep(_ASK_AGAIN_S)
        nodes = dashboard.nodes()
    for spec in specs:
        labels = spec.resources.labels
        found = [node.resources for node in nodes if labels.items() <= node.labels.items()]
        require_room(stage_bundles(spec), found, labels)


def _new_id(name: str) -> str:
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _submit(
    dashboard: Dashboard,
    job_id: str,
    words: list[str],
    command: str,
    result: str,
    allow_code: bool,
    **runtime_env: Any,
) -> None:
    """
    Args:
        words: the arguments of `alray.cli.job`.
        command: run, study or resume.
    """
    dashboard.submit(
        job_id,
        shlex.join(["python", "-m", "alray.cli.job", *words, *(["--allow-code"] if allow_code else [])]),
        {"alray": command, "result": result, "version": __version__},
        runtime_env={**runtime_env, "env_vars": _HOW_TO_STOP},
        node=None,
    )
