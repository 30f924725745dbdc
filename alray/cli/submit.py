"""`alray submit`."""

from __future__ import annotations

import secrets
import shlex
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alray import __version__
from alray.cli.terminal import INTERRUPTED, AllowCode, Json, Overrides, SpecFile, Terminal, terminal
from alray.errors import AlrayError, RequestError, RunError

if TYPE_CHECKING:
    from alray.submit.dashboard import Dashboard, Job

_STOP_S = 60
"""Seconds from SIGTERM to SIGKILL when a job is stopped: time for a checkpoint. Ray's own value is 3."""

DashboardAddress = Annotated[
    str,
    typer.Option(
        metavar="URL",
        envvar="RAY_API_SERVER_ADDRESS",
        help="The dashboard of the cluster, such as http://head:8265.",
        show_default=False,
    ),
]


def submit(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    address: DashboardAddress,
    folder: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The folder on the cluster for the folders of jobs. Several nodes must share it.  "
            "[default: ~/alray-jobs]",
            show_default=False,
        ),
    ] = None,
    include: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="A further file or folder to send along, such as what your code opens."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the job until it has ended.")] = True,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Run a spec or a study on a Ray cluster, as a job of Ray Jobs.

    Ctrl-C asks whether to stop the job. `alray jobs` shows, stops and fetches it.
    """
    given = overrides or []
    with terminal(as_json=json, spec=spec, overrides=given) as streams:
        from alray.submit.dashboard import Dashboard

        dashboard = Dashboard.open(address)
        job_id, place = _send(dashboard, spec, given, folder, include or [], allow_code)
        streams.tell(f"submitted {job_id}: it runs in {place} on the cluster")
        if not wait:
            if json:
                streams.answer({"job": job_id, "address": dashboard.url, "folder": place})
            streams.tell(f"follow it with  alray jobs logs {job_id} --follow --address {dashboard.url}")
            return
        end(streams, dashboard, job_id, asks=True)


def end(streams: Terminal, dashboard: Dashboard, job_id: str, *, asks: bool) -> None:
    """Follow a job to its end, show its results, and set the exit code to that of its command."""
    from alray.cli.job_view import watch

    seen = watch(streams, dashboard, job_id, asks=asks)
    if seen is None:
        where = f"{job_id} --address {dashboard.url}"
        streams.tell(f"the job goes on; follow it with  alray jobs logs --follow {where}")
        streams.tell(f"stop it with  alray jobs stop {where}")
        raise typer.Exit(INTERRUPTED)
    job, view = seen
    code = exit_code(job)
    if view.problems:
        streams.refuse(view.problems)
        raise typer.Exit(code or AlrayError.exit_code)
    if streams.as_json:
        streams.answer({"job": described(job), "summary": view.answer})
    if job.status == "FAILED" and view.answer is None:
        raise RunError(
            f"the job `{job.id}` failed: {(job.message.splitlines() or ['no reason is known'])[0]}",
            mend=f"`alray jobs logs {job.id}` has what it printed",
        )
    if view.answer is not None:
        streams.tell(f"fetch its folder with  alray jobs fetch {job_id} --address {dashboard.url}")
    if code:
        raise typer.Exit(code)


def exit_code(job: Job) -> int:
    """The exit code of the command of a job that has ended."""
    if job.status == "STOPPED":
        return INTERRUPTED
    return job.exit_code or int(job.status == "FAILED")


def described(job: Job) -> dict[str, Any]:
    """A job as `--json` prints it."""
    return {
        "id": job.id,
        "status": job.status,
        "exit_code": job.exit_code,
        "command": job.metadata.get("alray"),
        "folder": job.metadata.get("folder"),
        "begun_s": job.begun_s,
        "ended_s": job.ended_s,
    }


def _send(
    dashboard: Dashboard, spec: Path, overrides: list[str], folder: str | None, include: list[Path], allow_code: bool
) -> tuple[str, str]:
    """Submit the job; return its id and its folder on the cluster."""
    from alray.submit.package import package
    from alray.submit.places import FOLDER
    from alray.submit.room import require_room_for

    if folder is not None and not folder.startswith(("/", "~")):
        raise RequestError("the folder on the cluster is not absolute", key="--folder", mend="begin it with / or ~")
    packed = package(spec, overrides, include, allow_code=allow_code)
    require_room_for(packed.specs, dashboard)
    job_id = f"{packed.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    place = f"{(folder or FOLDER).rstrip('/')}/{job_id}"
    words = ["python", "-m", "alray.cli.job", place, packed.command, packed.inside(packed.spec), *overrides]
    if allow_code:
        words.append("--allow-code")
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "package.zip"
        packed.write(archive)
        dashboard.submit(
            job_id,
            shlex.join(words),
            {"alray": packed.command, "folder": place, "version": __version__},
            runtime_env={"working_dir": str(archive), "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(_STOP_S)}},
            node=None,
        )
    return job_id, place
