"""Following a run through its folder: its records as they come, and whether it is still running."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from typing import Any, Literal, TypeAlias

from alray.core.errors import CheckpointError
from alray.core.run_folder.records import (
    EventRecord,
    PlanRecord,
    Reader,
    Record,
    Status,
    Summary,
    effective,
    read_environment,
    read_summary,
)
from alray.core.run_folder.store import require_run_dir
from alray.core.storage.location import Location
from alray.planning.prediction.plan import Plan
from alray.planning.prediction.recorded import with_whole_plans
from alray.report.folder import RunFolder, longest_silence_s, read_plan, read_spec_text
from alray.report.progress import Progress

RunState: TypeAlias = Literal["starting", "running", "killed"] | Status
"""`starting`: it has no records yet. `killed`: it wrote nothing for longer than a run in progress is silent."""

_STARTING_S = 900.0
"""Seconds that a run may prepare data and measure its components before its first record."""


class Following:
    """A run that is followed. `read` brings it up to date."""

    def __init__(self, run_dir: Location, *, gone: Event | None = None) -> None:
        """
        Args:
            gone: is set when the command that runs it has ended; None: its records and its silence show whether it has.

        Raises:
            CheckpointError: if no run made this folder.
        """
        self._gone = gone
        self.path = require_run_dir(run_dir)
        self.run: RunFolder | None = None
        """The run folder so far, without its summary while the run is running; None before its first record."""
        self.progress: Progress | None = None
        self._spec_text = read_spec_text(self.path)
        self._reader = Reader(self.path / "records.jsonl")
        self._records: list[Record] = []
        self._plan: Plan | None = None
        self._environment: dict[str, Any] | None = None
        self._ended: EventRecord | None = None  # the event with which it ended, unless it began again
        self._heard_s = time.monotonic() - _age_s(self.path)

    @property
    def silent_s(self) -> float:
        """Seconds since it is known to have written something."""
        return time.monotonic() - self._heard_s

    @property
    def is_gone(self) -> bool | None:
        """Whether the command that runs it has ended; None where nothing tells."""
        return None if self._gone is None else self._gone.is_set()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to come."""
        return self.state not in ("starting", "running") if self.is_gone is None else self.is_gone

    @property
    def state(self) -> RunState:
        """A run ends in the state of its summary, which it writes after its last record."""
        if self.run is not None and self.run.summary is not None:
            return self.run.summary.status
        longest_s = _STARTING_S if self.run is None else longest_silence_s(self.run.plan)
        if self.silent_s >= longest_s if self.is_gone is None else self.is_gone:
            return "killed"
        return "starting" if self.run is None else "running"

    def read(self) -> bool:
        """Read what the run wrote since the last time; return whether it is worth showing.

        Raises CheckpointError if a file is damaged, or the folder is gone.
        """
        try:
            came = list(with_whole_plans(self._reader.new(), self.path / "records.jsonl"))
        except FileNotFoundError as error:
            if self._records or not (self.path / "spec.yaml").is_file():
                raise CheckpointError(
                    "the run folder was deleted", file=str(self.path), hint="watch another run"
                ) from error
            return False
        if came and self._records:
            self._heard_s = time.monotonic()
        for record in came:
            self._take(record)
        summary = self._summary()
        if self._plan is None or not (came or summary is not None):
            return False
        self.run = RunFolder(
            path=self.path,
            spec_text=self._spec_text,
            plan=self._plan,
            environment=self._environment,
            records=self._records,
            effective_records=effective(iter(self._records)),
            summary=summary,
        )
        return True

    def _take(self, record: Record) -> None:
        self._records.append(record)
        if isinstance(record, PlanRecord):  # of this attempt; it was written after plan.json
            self._plan = read_plan(self.path)
            self._environment = read_environment(self.path)
            self.progress = self.progress or Progress(self._plan)
            self.progress.plan = self._plan
        if self.progress is not None:
            self.progress.take(record)
        if isinstance(record, EventRecord):
            if record.event in ("finished", "interrupted", "failed"):
                self._ended = record
            elif record.event in ("started", "resumed"):
                self._ended = None

    def _summary(self) -> Summary | None:
        """The summary of this end of the run: after an earlier end it had written another one."""
        if self._ended is None or self.is_gone is False:
            return None
        summary = read_summary(self.path)
        return summary if summary is not None and summary.duration_s >= self._ended.time_s else None


def _age_s(run_dir: Location) -> float:
    """Seconds since the run last wrote something; on object storage that is not asked for, and counts from now."""
    if not isinstance(run_dir, Path):
        return 0.0
    files = (run_dir / name for name in ("records.jsonl", "environment.json", "spec.yaml"))
    return time.time() - max(file.stat().st_mtime for file in files if file.is_file())
