"""`--events`: what a run shows, as a line of JSON for each step of it, so that another process can show the same.

A line is `{"alray": KIND, ...}`. Libraries and a user's code may write other lines between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

from alray.api.console.display import Pace, RunObserver, terminal_display
from alray.api.console.interrupts import Interrupts
from alray.cli.terminal import Terminal
from alray.core.run_folder.records import Record, StageRecord, StepRecord
from alray.planning.prediction.plan import Plan

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


class EventLines(RunObserver):
    """Writes what a run does as events."""

    def __init__(self, streams: Terminal, interrupts: Interrupts) -> None:
        super().__init__(interrupts)
        self._streams = streams
        self._pace = Pace(_EVERY_S)

    def _planned(self, plan: Plan) -> None:
        self._streams.event("plan", plan=plan.as_json())

    def _recorded(self, record: Record) -> None:
        if isinstance(record, StageRecord):
            if not self._pace.take_turn((record.stage, record.replica)):
                return
            record = record.model_copy(update={"spans": []})
        elif isinstance(record, StepRecord) and not self._pace.take_turn("losses"):
            return
        self._streams.event("record", record=json.loads(record.model_dump_json()))

    def doing(self, what: str) -> None:
        self._streams.event("doing", what=what)

    def note(self, message: str) -> None:
        self._streams.event("note", message=message)


def display_on(streams: Terminal, interrupts: Interrupts) -> RunObserver:
    """The display for the standard error of a command, or with `--events` the lines that stand for it."""
    if streams.as_events:
        return EventLines(streams, interrupts)
    return terminal_display(streams.err, interrupts, streams.began_s)


@contextmanager
def reading(streams: Terminal, spec: Path) -> Iterator[RunObserver]:
    """The display of a command that runs nothing of a spec."""
    with display_on(streams, Interrupts()) as display:
        display.doing(f"reading {spec}")
        yield display
