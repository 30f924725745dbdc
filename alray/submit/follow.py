"""Follows the log of a job line by line, across connections that are lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from alray.core.errors import ConnectionLost, RequestError
from alray.submit.dashboard import Dashboard, Job

_PATIENCE_S = 300.0
_PAUSE_S = 2.0


class Log:
    """The log of a job as lines, each given once: a new connection sends the log from its beginning."""

    def __init__(self, line: Callable[[str], None]) -> None:
        self._line = line
        self._given = 0
        self.begin()

    def begin(self) -> None:
        """A new connection begins."""
        self._heard = 0
        self._rest = ""

    def take(self, text: str) -> None:
        """Take the next piece of the log, which may end in the middle of a line."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._heard += 1
            if self._heard > self._given:
                self._given = self._heard
                self._line(line)

    def end(self) -> None:
        """The log is complete: give its last line, which may lack an end."""
        if self._rest:
            self.take("\n")


def follow(
    dashboard: Dashboard,
    job_id: str,
    log: Log,
    *,
    folder: str | None = None,
    note: Callable[[str], None],
) -> Job:
    """Give the lines of a job to `log` until the job has ended, and return it.

    Raises ConnectionLost if the cluster does not answer for 5 minutes, and RequestError if the one that answers then
    does not have the job or asks for another token. Both name the folder, which outlasts the cluster.

    Args:
        folder: where the job writes its run or study on the cluster, if that is known.
        note: takes a line about a lost connection.
    """
    try:
        return _follow(dashboard, job_id, log, note)
    except (ConnectionLost, RequestError) as error:
        if folder is not None:
            way = f"if the cluster ended too, `alray submit --resume {folder}` continues from its last checkpoint"
            error.restate([replace(each, hint=f"{each.hint}; {way}" if each.hint else way) for each in error.problems])
        raise


def _follow(dashboard: Dashboard, job_id: str, log: Log, note: Callable[[str], None]) -> Job:
    lost_s: float | None = None

    def take(text: str) -> None:
        nonlocal lost_s
        lost_s = None
        log.take(text)

    while True:
        try:
            log.begin()
            dashboard.tail(job_id, take)
            job = dashboard.job(job_id)
            if job.ended:
                log.end()
                return job
            lost_s = None
        except ConnectionLost:
            now_s = time.monotonic()
            if lost_s is None:
                lost_s = now_s
                note(f"the connection to {dashboard.url} was lost; trying again")
            if now_s - lost_s > _PATIENCE_S:
                raise
            with suppress(ConnectionLost):
                dashboard.job(job_id)  # another cluster may answer there now
        time.sleep(_PAUSE_S)


def wait_until_ended(dashboard: Dashboard, job_id: str, timeout_s: float) -> Job:
    """Wait until a job has ended, at most so long, and return it as it is then."""
    until_s = time.monotonic() + timeout_s
    while True:
        job = dashboard.job(job_id)
        if job.ended or time.monotonic() > until_s:
            return job
        time.sleep(0.3)
