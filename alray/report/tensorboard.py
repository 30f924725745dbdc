"""The run as TensorBoard event files, written while it goes on: losses, accuracies, speed, memory and utilisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from alray.records import EvaluationRecord, EventRecord, PlanRecord, Record, StageRecord, StepRecord, Thinning
from alray.storage.location import Location, kept_at

if TYPE_CHECKING:
    from tensorboardX.event_file_writer import EventsWriter

_EVENT_FILES = "events.out.tfevents.*"


class _Scalar(NamedTuple):
    tag: str
    value: float


class _Point(NamedTuple):
    """Scalars of one moment. Without scalars: a restart, after which TensorBoard forgets all later steps."""

    scalars: tuple[_Scalar, ...]
    step: int
    wall_s: float


class TensorBoard:
    """Writes records as events while they come.

    The step of a scalar is the number of mini-batches completed, its wall time that of its record. Losses are thinned
    out as in `records.jsonl`. A file is made with the first record of a stage, ten mini-batches after the start, so
    that importing tensorboardX does not delay them. Each attempt of a run that is resumed has a file of its own.
    """

    def __init__(self, directory: Path) -> None:
        """directory: made with the first file."""
        self._directory = directory
        self._writer: EventsWriter | None = None
        self._points: list[_Point] = []  # not written yet
        self._thinning = Thinning()
        self._started_s = 0.0  # wall time at which the clock of the records was 0
        self._last_stage: int | None = None
        self._in_turns = False

    def take(self, record: Record) -> None:
        """Take over a record; with one of a stage, write all that came since the last."""
        if isinstance(record, EventRecord) and record.date is not None:
            self._started_s = datetime.fromisoformat(record.date).timestamp() - record.time_s
        self._points += self._points_of(record)
        if isinstance(record, StageRecord):
            self._write()

    def close(self) -> None:
        """Write the rest."""
        rest = self._thinning.rest()
        if rest is not None:
            self._points.append(self._point(rest, _of_step(rest)))
        if self._points and self._last_stage is not None:
            self._write()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _points_of(self, record: Record) -> Iterator[_Point]:
        if isinstance(record, PlanRecord):
            self._last_stage = record.plan["stages"] - 1
            self._in_turns = record.plan.get("in_turns", False)
        elif isinstance(record, EventRecord) and record.event == "resumed":
            self._thinning = Thinning()
            yield self._point(record, ())
        elif isinstance(record, StepRecord):
            kept = self._thinning.take(record)
            if kept is not None:
                yield self._point(kept, _of_step(kept))
        elif isinstance(record, EvaluationRecord):
            yield self._point(record, _of_evaluation(record))
        elif isinstance(record, StageRecord):
            yield self._point(record, self._of_stage(record))

    def _of_stage(self, record: StageRecord) -> Iterator[_Scalar]:
        where = f"stage-{record.stage}" + (f"-replica-{record.replica}" if record.replica else "")
        if record.peak_memory_bytes is not None:
            yield _Scalar(f"memory_bytes/{where}", record.peak_memory_bytes)
        waited_s = record.send_wait_s + record.receive_wait_s + record.idle_s
        if not record.warm_up and not self._in_turns and record.compute_s + waited_s > 0:
            yield _Scalar(f"utilisation/{where}", record.compute_s / (record.compute_s + waited_s))
        if record.stage == self._last_stage and record.replica == 0 and sum(record.step_times_s) > 0:
            samples = record.samples / record.step * len(record.step_times_s)
            yield _Scalar("samples_per_s", samples / sum(record.step_times_s))

    def _point(self, record: Record, scalars: Sequence[_Scalar] | Iterator[_Scalar]) -> _Point:
        return _Point(tuple(scalars), record.step, self._started_s + record.time_s)

    def _write(self) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.proto.summary_pb2 import Summary

        if self._writer is None:
            self._directory.mkdir(exist_ok=True)
            # It writes in this thread. tensorboardX's SummaryWriter would start a thread and a queue of its own.
            self._writer = EventsWriter(str(self._directory / "events"))
        for scalars, step, wall_s in self._points:
            if scalars:
                values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars]
                event = Event(wall_time=wall_s, step=step, summary=Summary(value=values))
            else:
                event = Event(wall_time=wall_s, step=step + 1, session_log=SessionLog(status=SessionLog.START))
            self._writer.write_event(event)
        self._writer.flush()
        self._points.clear()


def write_tensorboard(records: Sequence[Record], directory: Location) -> None:
    """Write the event file of a run that wrote none while it went on. records: those without lost work."""
    if not any(directory.glob(_EVENT_FILES)):
        with kept_at(directory) as folder, closing(TensorBoard(folder)) as board:
            for record in records:
                board.take(record)


def _of_step(record: StepRecord) -> Iterator[_Scalar]:
    yield _Scalar("lr", record.lr)
    for component, losses in record.losses.items():
        for name, value in losses.items():
            yield _Scalar(f"loss_{name}/component_{component:02d}", value)


def _of_evaluation(record: EvaluationRecord) -> Iterator[_Scalar]:
    for split in ("train", "validation", "test"):
        accuracy = getattr(record, split)
        if accuracy is not None:
            yield _Scalar(f"accuracy/{split}", accuracy)
        for entry in record.per_depth:
            of_depth = getattr(entry, split)
            if of_depth is not None:
                yield _Scalar(f"accuracy/depth-{entry.depth}/{split}", of_depth)
