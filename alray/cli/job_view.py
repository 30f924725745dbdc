"""Shows a job of a cluster as a run on this machine is shown: its log carries the events of `--events`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from alray import __version__
from alray.api.console.display import Display, terminal_display
from alray.api.console.interrupts import Interrupts
from alray.cli.event_lines import read_event
from alray.cli.terminal import Terminal
from alray.core.errors import Problem, RequestError, RunError
from alray.core.run_folder.records import record_of
from alray.planning.prediction.plan import Plan
from alray.submit.dashboard import Dashboard, Job
from alray.submit.follow import Log, follow

_SHOWN = 100
"""Characters of a line that an error shows."""
STOP, DETACH = "stop", "detach"
CONTINUES, STOPPING = "the job continues", "the job is being stopped"
_RAYS_OWN = "Running entrypoint for job"
"""Ray's line in the log of every job. It may come after what the command printed."""


_Read = TypeVar("_Read")


class JobView:
    """Shows the lines of a job's log. `answer` and `problems` are what its command ended with."""

    def __init__(self, streams: Terminal, display: Display) -> None:
        self._streams = streams
        self._display = display
        self._before: list[str] = []
        self._begun = False
        self._there = __version__
        self._reported_differences = False
        self.answer: Any = None
        self.problems: tuple[Problem, ...] = ()

    def line(self, line: str) -> None:
        """Show one line: an event, or what a library or a user's code printed."""
        event = read_event(line)
        if event is not None:
            try:
                self._show(*event)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                raise RunError(
                    f"the log of the job holds a line that alray does not write: {line[:_SHOWN]}",
                    hint="read it in the dashboard; the same alray here and there shows it",
                ) from error
        elif self._begun:
            self._display.note(line)
        else:
            self._before.append(line)  # a line of Ray, and of interest only if nothing follows

    def tick(self) -> None:
        """Draw again. Called several times a second."""
        self._display.statuses([])

    def unshown(self, job: Job) -> list[str]:
        """The lines to show of a job that has written no events: the lines of its log, else Ray's message."""
        if self._begun:
            return []
        lines = [line for line in self._before if line.strip() and _RAYS_OWN not in line]
        return lines or job.message.splitlines()

    def require_begun(self, job: Job) -> None:
        """Raise RequestError if alray never spoke: it is not there, or Ray could not start the job."""
        if self._begun or job.status == "STOPPED":
            return
        lines = self.unshown(job)
        last = lines[-1].strip() if lines else "nothing was printed"
        if "No module named" in last or job.exit_code == 127:
            raise RequestError(
                f"the cluster's `python` cannot run alray: {last}",
                hint=f"install alray {__version__} on every node, in the environment that is active for `ray start`",
            )
        raise RequestError(f"the job did not begin: {last}", hint=f"`alray jobs logs {job.id}` has the rest")

    def _show(self, kind: str, content: dict[str, Any]) -> None:
        self._begun = True
        if kind == "versions":
            self._there = content["packages"]["alray"]
            self._display.note(f"alray {self._there} with Ray {content['packages']['ray']} on {content['host']}")
            if self._there != __version__:
                self._display.note(f"the cluster's alray {self._there} reads the spec, not this alray {__version__}")
        elif kind == "doing":
            self._display.doing(content["what"])
        elif kind in ("note", "tell"):
            self._display.note(content.get("message", content.get("text", "")))
        elif kind == "plan":
            if (plan := self._known(Plan.from_json, content["plan"])) is not None:
                self._display.planned(plan)
        elif kind == "record":
            if (record := self._known(record_of, content["record"])) is not None:
                self._display.record(record)
        elif kind == "say":
            self._display.close()
            self._streams.say(content["text"])
        elif kind == "fields":
            self._display.close()
            self._streams.fields([(name, value) for name, value in content["rows"]])
        elif kind == "answer":
            self.answer = content["answer"]
        else:
            # The files of the cluster are not those of this machine: a line that did not come along is not looked up.
            self.problems = tuple(Problem.from_json({"text": "", **error}) for error in content["errors"])

    def _known(self, read: Callable[[Any], _Read], value: Any) -> _Read | None:
        """Return a value as this alray reads it; None if another version wrote it in another form."""
        try:
            return read(value)
        except (KeyError, TypeError, ValueError):
            if self._there == __version__:
                raise
            if not self._reported_differences:
                self._reported_differences = True
                self._display.note(f"some of what alray {self._there} reports cannot be shown by alray {__version__}")
            return None


def watch(
    streams: Terminal, dashboard: Dashboard, job_id: str, *, folder: str | None, asks: bool
) -> tuple[Job, JobView] | str:
    """Show a job until it has ended; GOES_ON or STOPPING if the user went away from it.

    Args:
        folder: as for `follow`.
        asks: whether Ctrl-C asks what to do. Otherwise it leaves the job alone.
    """
    with closing(terminal_display(streams.err, Interrupts(), streams.began_s)) as display:
        view = JobView(streams, display)
        log, left = Log(view.line), CONTINUES
        display.doing(f"waiting for the cluster to start {job_id}")
        while True:
            try:
                job = follow(dashboard, job_id, log, folder=folder, tick=view.tick, note=display.note)
                break
            except KeyboardInterrupt:
                display.close()
                if not asks or _wish(streams) == DETACH:
                    return left
                dashboard.stop(job_id)
                display.note("stopping: a run finishes its mini-batch and writes a checkpoint; a study ends its trials")
                asks, left = False, STOPPING
        view.require_begun(job)
    return job, view


def _wish(streams: Terminal) -> str:
    """Ask whether to stop the job or leave it running. Without a terminal, and after another Ctrl-C, it continues."""
    if not (sys.stdin.isatty() and streams.err.isatty()):
        return DETACH
    streams.err.write("\n[d]etach and let the job continue, or [s]top it? [d] ")
    streams.err.flush()
    try:
        return STOP if sys.stdin.readline().strip().lower() in ("s", "stop") else DETACH
    except KeyboardInterrupt:
        return DETACH
