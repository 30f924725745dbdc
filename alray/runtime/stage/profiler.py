"""`--profile`: torch.profiler traces of chosen mini-batches, with ranges named by action (`Clock.names_ranges`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, supported_activities

from alray.core.run_folder.records import replace_file
from alray.core.storage.location import Location
from alray.runtime.stage.clock import Clock

_QUIET = "5"  # Kineto otherwise reports its progress, and that a machine without a GPU has none


@dataclass
class Profiler:
    """Traces the chosen mini-batches of one process into one Chrome trace, which Perfetto opens.

    torch records a whole process, so stages that take turns in one process share a profiler. It records from the first
    stage that begins a range of mini-batches to the last one that ends it. Without ranges it records nothing.

    Attributes:
        ranges: of mini-batches, from 1, not touching each other.
        trace: the file to add to.
        stages: number of stages in this process, those of all replicas.
    """

    ranges: Sequence[range]
    trace: Location
    stages: int
    device: torch.device

    def __post_init__(self) -> None:
        self._session: profile | None = None
        self._to_end: dict[range, int] = {}  # ranges that were opened, and how many stages have still to end them

    @contextmanager
    def mini_batch(self, step: int, clock: Clock) -> Iterator[None]:
        """Around one mini-batch of one stage: records it if it was chosen. Starting and writing count as pauses."""
        within = next((steps for steps in self.ranges if step in steps), None)
        if within is None:
            yield
            return
        self._to_end.setdefault(within, self.stages)
        if self._session is None:
            with clock.pause("profile"):
                self._begin()
        clock.names_ranges = True
        try:
            yield
        finally:
            clock.names_ranges = False
        if step == within[-1]:
            self._to_end[within] -= 1
            if not any(self._to_end.values()):
                with clock.pause("profile"):
                    self.close()

    def _begin(self) -> None:
        of_device = getattr(ProfilerActivity, self.device.type.upper(), ProfilerActivity.PrivateUse1)
        activities = {ProfilerActivity.CPU, of_device} & supported_activities()
        self._session = profile(activities=activities, record_shapes=True)
        self._session.start()

    def close(self) -> None:
        """Stop recording, if it is on, and add the result to the trace, which is then complete."""
        session, self._session = self._session, None
        if session is None:
            return
        session.stop()
        with TemporaryDirectory() as scratch:  # torch writes no file whose name is not UTF-8
            exported = Path(scratch) / "trace.json"
            session.export_chrome_trace(str(exported))
            recorded = json.loads(exported.read_text(encoding="utf-8"))
        del recorded["traceName"]  # the file that was exported
        before = json.loads(self.trace.read_text(encoding="utf-8")) if self.trace.exists() else None
        together = recorded if before is None else _added(before, recorded)
        self.trace.parent.mkdir(exist_ok=True)
        replace_file(self.trace, json.dumps(together, separators=(",", ":")))


def prepare_recording() -> None:
    """Load torch's recorder: this takes a second, once a process, and must run in the thread that imported torch."""
    os.environ.setdefault("KINETO_LOG_LEVEL", _QUIET)
    with profile(activities=[ProfilerActivity.CPU]):
        pass


def _added(before: dict[str, Any], recorded: dict[str, Any]) -> dict[str, Any]:
    """Both traces as one. Times are microseconds from a base that each trace has for itself."""
    shift = (recorded["baseTimeNanoseconds"] - before["baseTimeNanoseconds"]) / 1e3
    events = [{**event, "ts": event["ts"] + shift} if "ts" in event else event for event in recorded["traceEvents"]]
    return {**before, "traceEvents": [*before["traceEvents"], *events]}
