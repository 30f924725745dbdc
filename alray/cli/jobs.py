"""`alray jobs`: the jobs that `alray submit` made."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alray.cli.options import DashboardAddress, Json
from alray.cli.submit import described, end, exit_code
from alray.cli.terminal import Terminal, shown, terminal
from alray.report.table import Table
from alray.report.text import NOT_MEASURED, seconds

if TYPE_CHECKING:
    from alray.submit.dashboard import Job

_STOPPED_S = 90.0

JobId = Annotated[str, typer.Argument(metavar="ID", help="A job, as `alray submit` named it.", show_default=False)]


def status(
    job_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A job.  [default: all jobs]", show_default=False)
    ] = None,
    *,
    address: DashboardAddress,
    json: Json = False,
) -> None:
    """Show how a job stands, or list all jobs of alray on the cluster."""
    with terminal(as_json=json) as streams:
        from alray.submit.dashboard import Dashboard

        dashboard = Dashboard.open(address)
        if job_id is not None:
            job = dashboard.job(job_id)
            if json:
                streams.answer(described(job))
            else:
                streams.fields(status_rows(job))
            return
        jobs = [job for job in dashboard.jobs() if job.metadata.get("alray") in ("run", "study", "resume")]
        if json:
            streams.answer({"jobs": [described(job) for job in jobs]})
            return
        if not jobs:
            streams.tell(f"alray has submitted no job to {dashboard.url}")
            return
        rows = tuple((job.id, job.status, _lasted(job)) for job in jobs)
        streams.put(streams.page.table(Table(("job", "status", "lasted"), rows)))


def logs(
    job_id: JobId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    address: DashboardAddress,
    json: Json = False,
) -> None:
    """Show the log of a job.

    Ctrl-C leaves the job alone.
    """
    with terminal(as_json=json) as streams:
        from alray.submit.dashboard import Dashboard

        dashboard = Dashboard.open(address)
        job = dashboard.job(job_id)
        if follow:
            end(streams, dashboard, job_id, folder=job.metadata.get("result"), asks=False)
            return
        text = dashboard.log(job_id)
        if json:
            streams.answer({"log": text})
        else:
            streams.put(text.rstrip("\n") or job.message)


def stop(job_id: JobId, *, address: DashboardAddress, json: Json = False) -> None:
    """Stop a job.

    A run finishes its mini-batch and writes a checkpoint. A study ends the trials that are running, and reports those
    that have ended.
    """
    with terminal(as_json=json) as streams:
        from alray.submit.dashboard import Dashboard
        from alray.submit.follow import wait_until_ended

        dashboard = Dashboard.open(address)
        dashboard.job(job_id)
        dashboard.stop(job_id)
        _tell(wait_until_ended(dashboard, job_id, _STOPPED_S), streams)


def fetch(
    job_id: JobId,
    *,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder to make, new or empty.  [default: runs/<ID> or studies/<ID>]"),
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


def _tell(job: Job, streams: Terminal) -> None:
    if streams.as_json:
        streams.answer(described(job))
    else:
        streams.fields(status_rows(job))


def status_rows(job: Job) -> list[tuple[str, str]]:
    """How a job stands, as names with values."""
    rows = [("job", job.id), ("status", job.status), ("lasted", _lasted(job))]
    if job.ended and exit_code(job):
        rows.append(("exit code", str(exit_code(job))))
    if "result" in job.metadata:
        rows.append(("folder", job.metadata["result"]))
    return rows


def _lasted(job: Job) -> str:
    if job.begun_s is None:
        return NOT_MEASURED
    return seconds((job.ended_s or time.time()) - job.begun_s)
