"""`--events`: what a run shows, as a line of JSON for each step of it, so that another process can show the same.

A line is `{"alray": KIND, ...}`. Libraries and a user's code may write other lines between them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, get_args

from alray.cli.terminal import Terminal
from alray.console.choose import terminal_display
from alray.console.display import Display
from alray.console.interrupts import Interrupts
from alray.prediction.plan import Plan
from alray.run_folder.records import Record, StageRecord, StepRecord
from alray.stage.telemetry import StageStatus

Kind = Literal["versions", "doing", "note", "plan", "record", "say", "fields", "tell", "answer", "problems"]
"""versions: the first line of a job. say, fields, tell, answer, problems: as `Terminal` prints them."""

_EVERY_S = 1.0
"""Losses and times of stages are sent at most so often: a job may run for weeks."""


def read_event(line: str) -> tuple[Kind, dict[str, Any]] | None:
    """The kind and the content of a line; None for a line that is no event."""
    if not line.startswith('{"alray": "'):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    kind = value.pop("alray")
    return (kind, value) if kind in get_args(Kind) else None


class EventLines:
    """The `Observer` of a run that writes what it hears as events."""

    def __init__(self, streams: Terminal, interrupts: Interrupts) -> None:
        self._streams = streams
        self._interrupts = interrupts
        self._sent_s: dict[object, float] = {}

    def __enter__(self) -> EventLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: lines need no end."""

    def planned(self, plan: Plan) -> None:
        self._interrupts.count_from_now()
        self._streams.event("plan", plan=plan.as_json())

    def record(self, record: Record) -> None:
        self._interrupts.hold()
        if isinstance(record, StageRecord):
            if not self._is_due((record.stage, record.replica)):
                return
            record = record.model_copy(update={"spans": [], "step_times_s": []})
        elif isinstance(record, StepRecord) and not self._is_due("losses"):
            return
        self._streams.event("record", record=json.loads(record.model_dump_json()))

    def statuses(self, statuses: Sequence[StageStatus]) -> None:
        self._interrupts.hold()

    def doing(self, what: str) -> None:
        self._streams.event("doing", what=what)

    def note(self, message: str) -> None:
        self._streams.event("note", message=message)

    def _is_due(self, what: object) -> bool:
        now_s = time.monotonic()
        if now_s - self._sent_s.get(what, -_EVERY_S) < _EVERY_S:
            return False
        self._sent_s[what] = now_s
        return True


def display_on(streams: Terminal, interrupts: Interrupts) -> Display | EventLines:
    """The display for the standard error of a command, or with `--events` the lines that stand for it."""
    if streams.as_events:
        return EventLines(streams, interrupts)
    return terminal_display(streams.err, interrupts, streams.began_s)
