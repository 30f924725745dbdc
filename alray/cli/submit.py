"""`alray submit` and `alray fetch`: jobs on a cluster, which `ray job` lists, shows and stops."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alray.cli.options import AllowCode, DashboardAddress, Json, Overrides
from alray.cli.terminal import INTERRUPTED, Terminal, shown, terminal
from alray.core.errors import RequestError, RunError

if TYPE_CHECKING:
    from alray.submit.dashboard import Dashboard, Job
    from alray.submit.send import Sent


def submit(
    spec: Annotated[Path | None, typer.Argument(metavar="SPEC", help="A spec file.")] = None,
    overrides: Overrides = None,
    *,
    address: DashboardAddress,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a run or a study instead of SPEC: the ID of its job, or its folder there or on object "
            "storage.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The folder on the cluster for the folders of jobs, which several nodes must share, or a URL: "
            "s3://...",
            show_default="~/alray-jobs",
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

    Ctrl-C leaves the job alone. `ray job list`, `ray job logs` and `ray job stop` show and stop it, and `alray fetch`
    brings its folder.
    """
    given = overrides or []
    if resume is not None and spec is not None:
        spec, given = None, [str(spec), *given]  # with --resume all words are overrides
    with terminal(as_json=json) as streams:
        if resume is not None and (output is not None or include):
            raise RequestError(
                "a run continues in its folder, with what was sent before",
                key="--resume",
                hint="leave out --output and --include",
            )
        if spec is None and resume is None:
            raise RequestError("give either SPEC or --resume RUN", key="SPEC", hint="name one of them")
        from alray.submit.dashboard import Dashboard
        from alray.submit.send import send, send_resume

        dashboard = Dashboard.open(address)
        if spec is None:
            assert resume is not None
            sent = send_resume(dashboard, resume, given, allow_code=allow_code)
        else:
            sent = send(dashboard, spec, given, folder=output, include=include or [], allow_code=allow_code)
        streams.tell(f"submitted {sent.id}: its folder is {sent.result}")
        if wait:
            _follow(streams, dashboard, sent)
            return
        if json:
            streams.answer({"job": sent.id, "address": dashboard.url, "result": sent.result})
        _tell_how_to_follow(streams, dashboard, sent)


def fetch(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="A job, as `alray submit` named it.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder to make, new or empty.", show_default="runs/<ID> or studies/<ID>"),
    ] = None,
    address: DashboardAddress,
    json: Json = False,
) -> None:
    """Bring the run folder or study folder of a job to this machine.

    No storage has to be shared with the cluster: the files come through its dashboard.
    """
    with terminal(as_json=json) as streams:
        from alray.submit.dashboard import Dashboard
        from alray.submit.fetch import fetch as fetch_folder

        dashboard = Dashboard.open(address)
        job = dashboard.job(job_id)
        parent = "studies" if job.metadata.get("alray") == "study" else "runs"
        fetched = fetch_folder(dashboard, job, output or Path(parent) / job_id, streams.tell)
        if json:
            streams.answer({"folder": str(fetched.folder.resolve()), "bytes": fetched.bytes})
        else:
            streams.say(f"fetched {shown(fetched.folder)}")


def _follow(streams: Terminal, dashboard: Dashboard, sent: Sent) -> None:
    """Show the log of a job until it has ended, and set the exit code to that of its command."""
    from alray.submit.follow import Log, follow

    try:
        job = follow(dashboard, sent.id, Log(streams.put), folder=sent.result, note=streams.tell)
    except KeyboardInterrupt:
        streams.tell("the job continues")
        _tell_how_to_follow(streams, dashboard, sent)
        if streams.as_json:
            streams.answer({"job": _described(dashboard.job(sent.id))})
        raise typer.Exit(INTERRUPTED) from None
    code = INTERRUPTED if job.status == "STOPPED" else job.exit_code or int(job.status == "FAILED")
    if job.status == "FAILED":
        failure = RunError(
            f"the job `{job.id}` failed: {_reason(job)}",
            hint=f"if it had started to train, `alray submit --resume {job.id}` continues from its last checkpoint",
        )
        streams.refuse(failure.problems)
        raise typer.Exit(code)
    if streams.as_json:
        streams.answer({"job": _described(job)})
    where = f"{job.id} --address {dashboard.url}"
    streams.tell(f"fetch its folder with  alray fetch {where}")
    if code:
        streams.tell(f"continue with  alray submit --resume {where}")
        raise typer.Exit(code)


def _tell_how_to_follow(streams: Terminal, dashboard: Dashboard, sent: Sent) -> None:
    where = f"{sent.id} --address {dashboard.url}"
    streams.tell(f"follow it with  ray job logs --follow {where}")
    streams.tell(f"stop it with  ray job stop {where}")


def _reason(job: Job) -> str:
    """Why a job failed that printed nothing itself."""
    if job.exit_code is not None and job.exit_code < 0:
        return f"{signal.Signals(-job.exit_code).name} ended it; the system sends SIGKILL where memory has run out"
    return (job.message.splitlines() or ["no reason is known"])[0]


def _described(job: Job) -> dict[str, Any]:
    """A job as `--json` prints it."""
    return {
        "id": job.id,
        "status": job.status,
        "exit_code": job.exit_code,
        "command": job.metadata.get("alray"),
        "result": job.metadata.get("result"),
        "begun_s": job.begun_s,
        "ended_s": job.ended_s,
    }
