"""The run as TensorBoard event files: losses per component, learning rate, accuracies, samples per second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary

from alray.records import EvaluationRecord, EventRecord, Record, StageRecord, StepRecord

MAX_STEPS = 2_000  # mini-batches written, twice what TensorBoard draws by itself; of a longer run every n-th


def write_tensorboard(records: Sequence[Record], directory: Path, *, stages: int) -> Path:
    """Write one event file into `directory`, in place of any that were there, and return the directory.

    `records` are those that were kept. A scalar's step is the number of mini-batches completed, its wall time
    the seconds since the run was started (records hold no date), so TensorBoard's "relative" axis is right.
    Of a run of more than `MAX_STEPS` mini-batches every n-th is written, the smallest n that keeps to it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("events.out.tfevents.*"):
        old.unlink()
    # Written in this thread: tensorboardX's SummaryWriter would bring a queue between processes and a thread.
    writer = EventsWriter(str(directory / "events"))
    for tag, value, step, elapsed_s in _scalars(records, stages=stages):
        value_of_tag = Summary.Value(tag=tag, simple_value=value)
        writer.write_event(Event(wall_time=elapsed_s, step=step, summary=Summary(value=[value_of_tag])))
    writer.close()
    return directory


def _scalars(records: Sequence[Record], *, stages: int) -> Iterator[tuple[str, float, int, float]]:
    """(tag, value, mini-batches completed, seconds since the run was started)."""
    num_steps = sum(isinstance(record, StepRecord) for record in records)
    stride = max(1, -(-num_steps // MAX_STEPS))
    seen = 0
    for record, elapsed_s in _with_elapsed(records):
        if isinstance(record, StepRecord):
            if seen % stride == 0:
                yield "lr", record.lr, record.step, elapsed_s
                for component, losses in record.losses.items():
                    for name, value in losses.items():
                        yield f"loss_{name}/component_{component:02d}", value, record.step, elapsed_s
            seen += 1
        elif isinstance(record, EvaluationRecord):
            for tag, accuracy in (
                ("train", record.train),
                ("validation", record.validation),
                ("test", record.test),
            ):
                if accuracy is not None:
                    yield f"accuracy/{tag}", accuracy, record.step, elapsed_s
        elif isinstance(record, StageRecord) and record.stage == stages - 1 and record.replica == 0:
            # The last stage is where a mini-batch is complete.
            seconds = sum(record.step_times_s)
            if seconds > 0:
                per_step = record.samples / record.step
                yield "samples_per_s", per_step * len(record.step_times_s) / seconds, record.step, elapsed_s


def _with_elapsed(records: Sequence[Record]) -> Iterator[tuple[Record, float]]:
    """Each record with its seconds on one clock: where a resume starts the clock again, it is put after."""
    offset_s = latest_s = 0.0
    for record in records:
        begins = isinstance(record, EventRecord) and record.event in ("started", "resumed")
        if begins and record.time_s + offset_s < latest_s:
            offset_s = latest_s - record.time_s
        elapsed_s = record.time_s + offset_s
        latest_s = max(latest_s, elapsed_s)
        yield record, elapsed_s
