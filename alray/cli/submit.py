"""`alray submit`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alray.api.console.layout import unbroken
from alray.cli.options import AllowCode, DashboardAddress, Json, Overrides
from alray.cli.terminal import INTERRUPTED, Terminal, terminal
from alray.core.errors import RequestError, RunError

if TYPE_CHECKING:
    from alray.submit.dashboard import Dashboard, Job


def submit(
    spec: Annotated[Path | None, typer.Argument(metavar="SPEC", help="A spec file.", show_default=False)] = None,
    overrides: Overrides = None,
    *,
    address: DashboardAddress,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Go on with a run or a study instead of SPEC: the ID of its job, or its folder there or on object "
            "storage.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The folder on the cluster for the folders of jobs, which several nodes must share, or a URL: "
            "s3://...  [default: ~/alray-jobs]",
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
    if resume is not None and spec is not None:
        spec, given = None, [str(spec), *given]  # with --resume all words are overrides
    with terminal(as_json=json) as streams:
        _require_one(spec, resume, also=output is not None or bool(include))
        from alray.submit.dashboard import Dashboard
        from alray.submit.send import send, send_resume

        dashboard = Dashboard.open(address)
        if resume is not None:
            sent = send_resume(dashboard, resume, given, allow_code=allow_code)
        else:
            assert spec is not None
            sent = send(dashboard, spec, given, folder=output, include=include or [], allow_code=allow_code)
        streams.tell(f"submitted {sent.id}: its folder is {sent.result}")
        if not wait:
            if json:
                streams.answer({"job": sent.id, "address": dashboard.url, "result": sent.result})
            streams.tell(f"follow it with  {unbroken(f'alray jobs logs {sent.id} --follow --address {dashboard.url}')}")
            return
        end(streams, dashboard, sent.id, folder=sent.result, asks=True)


def _require_one(spec: Path | None, resume: str | None, *, also: bool) -> None:
    """Raise RequestError if there is nothing to run, or something to send `also` with a run that continues."""
    if spec is None and resume is None:
        raise RequestError("give either SPEC or --resume RUN", key="SPEC", hint="name one of them")
    if resume is not None and also:
        raise RequestError(
            "a run continues in its folder, with what was sent before",
            key="--resume",
            hint="leave out --output and --include",
        )


def end(streams: Terminal, dashboard: Dashboard, job_id: str, *, folder: str | None, asks: bool) -> None:
    """Show the log of a job until it has ended, and set the exit code to that of its command.

    Args:
        folder: as for `follow`.
        asks: whether Ctrl-C asks what to do. Otherwise it leaves the job alone.
    """
    from alray.submit.follow import Log, follow

    log, where = Log(streams.put), f"{job_id} --address {dashboard.url}"
    stopping = False
    while True:
        try:
            job = follow(dashboard, job_id, log, folder=folder, note=streams.tell)
            break
        except KeyboardInterrupt:
            if stopping or not asks or not _wants_to_stop(streams):
                does = "is being stopped" if stopping else "continues"
                streams.tell(f"the job {does}; follow it with  {unbroken(f'alray jobs logs --follow {where}')}")
                if not stopping:
                    streams.tell(f"stop it with  {unbroken(f'alray jobs stop {where}')}")
                if streams.as_json:
                    streams.answer({"job": described(dashboard.job(job_id))})
                raise typer.Exit(INTERRUPTED) from None
            dashboard.stop(job_id)
            streams.tell("stopping: a run finishes its mini-batch and writes a checkpoint; a study ends its trials")
            stopping = True
    code = exit_code(job)
    if job.status == "FAILED":
        failure = RunError(
            f"the job `{job.id}` failed: {_reason(job)}",
            hint=f"`alray jobs logs {job.id}` has what it printed; if it had started to train, `alray submit --resume "
            f"{job.id}` continues from its last checkpoint",
        )
        streams.refuse(failure.problems)
        raise typer.Exit(code)
    if streams.as_json:
        streams.answer({"job": described(job)})
    streams.tell(f"fetch its folder with  {unbroken(f'alray jobs fetch {where}')}")
    if code:
        streams.tell(f"continue with  {unbroken(f'alray submit --resume {where}')}")
        raise typer.Exit(code)


def _wants_to_stop(streams: Terminal) -> bool:
    """Ask whether to stop the job or leave it running. Without a terminal, and after another Ctrl-C, it continues."""
    if not (sys.stdin.isatty() and streams.err.isatty()):
        return False
    streams.err.write("\n[d]etach and let the job continue, or [s]top it? [d] ")
    streams.err.flush()
    try:
        return sys.stdin.readline().strip().lower() in ("s", "stop")
    except KeyboardInterrupt:
        return False


def _reason(job: Job) -> str:
    """Why a job failed that printed nothing itself."""
    if job.exit_code is not None and job.exit_code < 0:
        return f"{signal.Signals(-job.exit_code).name} ended it; the system sends SIGKILL where memory has run out"
    return (job.message.splitlines() or ["no reason is known"])[0]


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
        "result": job.metadata.get("result"),
        "begun_s": job.begun_s,
        "ended_s": job.ended_s,
    }
