"""Records of a run as points for trackers: losses, metrics, speed, memory and utilisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from alray.core.run_folder.records import (
    EvaluationRecord,
    EventRecord,
    PlanRecord,
    Record,
    StageRecord,
    StepRecord,
    Thinning,
)
from alray.core.run_folder.utilisation import Utilisation
from alray.report.trackers.tracker import TrackedPoint


class Points:
    """Collects points from records. Losses are thinned out as in `records.jsonl`."""

    def __init__(self) -> None:
        self._points: list[TrackedPoint] = []  # not given yet
        self._thinning = Thinning()
        self._started_s = 0.0  # wall time at which the clock of the records was 0
        self._planned = False
        self._in_turns = False
        self._utilisation = Utilisation()

    def take(self, record: Record) -> Sequence[TrackedPoint]:
        """Take over a record; with one of a stage, return all points since the last such record."""
        if isinstance(record, EventRecord):
            self._started_s = datetime.fromisoformat(record.date).timestamp() - record.time_s
        # Only a restart has no scalars. A record may have none, such as one of a stage that takes turns.
        self._points += [point for point in self._points_of(record) if point.scalars or isinstance(record, EventRecord)]
        return self._given() if isinstance(record, StageRecord) else ()

    def rest(self) -> Sequence[TrackedPoint]:
        """The points since the last record of a stage. Without a plan there are none."""
        rest = self._thinning.rest()
        if rest is not None:
            self._points.append(self._point(rest, _of_step(rest)))
        return self._given() if self._planned else ()

    def _given(self) -> Sequence[TrackedPoint]:
        given, self._points = self._points, []
        return given

    def _points_of(self, record: Record) -> Iterator[TrackedPoint]:
        if isinstance(record, PlanRecord):
            self._planned = True
            self._in_turns = record.plan["in_turns"]
            self._utilisation = Utilisation()
        elif isinstance(record, EventRecord) and record.event == "resumed":
            self._thinning = Thinning()
            yield self._point(record, ())
        elif isinstance(record, StepRecord):
            thinned = self._thinning.take(record)
            if thinned is not None:
                yield self._point(thinned, _of_step(thinned))
        elif isinstance(record, EvaluationRecord):
            yield self._point(record, _of_evaluation(record))
        elif isinstance(record, StageRecord):
            busy = self._utilisation.take(record)
            yield self._point(record, _of_stage(record, None if self._in_turns else busy))

    def _point(self, record: Record, scalars: Sequence[_Scalar] | Iterator[_Scalar]) -> TrackedPoint:
        return TrackedPoint(record.step, self._started_s + record.time_s, dict(scalars))


_Scalar = tuple[str, float]


def _of_step(record: StepRecord) -> Iterator[_Scalar]:
    yield "lr", record.lr
    for component, losses in record.losses.items():
        for name, value in losses.items():
            yield f"loss_{name}/component_{component:02d}", value


def _of_evaluation(record: EvaluationRecord) -> Iterator[_Scalar]:
    for split in ("train", "validation", "test"):
        value = getattr(record, split)
        if value is not None:
            yield f"{record.metric}/{split}", value
        for entry in record.per_depth:
            of_depth = getattr(entry, split)
            if of_depth is not None:
                yield f"{record.metric}/depth-{entry.depth}/{split}", of_depth


def _of_stage(record: StageRecord, utilisation: float | None) -> Iterator[_Scalar]:
    """
    Args:
        utilisation: None where it is not known, or the stages take turns in one process: there a stage waits while
            another one computes.
    """
    where = f"stage-{record.stage}" + (f"-replica-{record.replica}" if record.replica else "")
    if record.peak_memory_bytes is not None:
        yield f"memory_bytes/{where}", record.peak_memory_bytes
    if utilisation is not None:
        yield f"utilisation/{where}", utilisation
    if record.queued_messages is not None:
        yield f"queued_messages/{where}", record.queued_messages
    if record.samples_per_s is not None and record.replica == 0:
        yield "samples_per_s", record.samples_per_s
