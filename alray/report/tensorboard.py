"""The run as TensorBoard event files: losses per component, learning rate, accuracies, samples per second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from alray.records import EvaluationRecord, EventRecord, Record, StageRecord, StepRecord

MAX_STEPS = 2_000  # mini-batches that are written at most: twice as many as TensorBoard draws


def write_tensorboard(records: Sequence[Record], directory: Path, *, stages: int, max_steps: int = MAX_STEPS) -> Path:
    """Write one event file into `directory`, remove earlier ones, and return the directory.

    records: the records without lost work. The step of a scalar is the number of mini-batches completed. Its wall time
    is the seconds since the run was started, because records hold no date; TensorBoard's "relative" axis shows it.
    Of more than `max_steps` mini-batches only every n-th is written, with the smallest n that suffices.
    """
    # Imported where it is needed: this takes a second.
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("events.out.tfevents.*"):
        old.unlink()
    # EventsWriter writes in this thread. tensorboardX's SummaryWriter would start a thread and a queue of its own.
    writer = EventsWriter(str(directory / "events"))
    for tag, value, step, elapsed_s in _scalars(records, stages=stages, max_steps=max_steps):
        value_of_tag = Summary.Value(tag=tag, simple_value=value)
        writer.write_event(Event(wall_time=elapsed_s, step=step, summary=Summary(value=[value_of_tag])))
    writer.close()
    return directory


def _scalars(records: Sequence[Record], *, stages: int, max_steps: int) -> Iterator[tuple[str, float, int, float]]:
    """(tag, value, mini-batches completed, seconds since the run was started)."""
    num_steps = sum(isinstance(record, StepRecord) for record in records)
    stride = max(1, -(-num_steps // max_steps))
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
            for split in ("train", "validation", "test"):
                accuracy = getattr(record, split)
                if accuracy is not None:
                    yield f"accuracy/{split}", accuracy, record.step, elapsed_s
        elif isinstance(record, StageRecord) and record.stage == stages - 1 and record.replica == 0:
            # A mini-batch is completed on the last stage.
            seconds = sum(record.step_times_s)
            if seconds > 0:
                per_step = record.samples / record.step
                yield "samples_per_s", per_step * len(record.step_times_s) / seconds, record.step, elapsed_s


def _with_elapsed(records: Sequence[Record]) -> Iterator[tuple[Record, float]]:
    """Each record with its seconds on one clock that never goes back, although a resume may restart its own."""
    offset_s = latest_s = 0.0
    for record in records:
        begins = isinstance(record, EventRecord) and record.event in ("started", "resumed")
        if begins and record.time_s + offset_s < latest_s:
            offset_s = latest_s - record.time_s
        elapsed_s = record.time_s + offset_s
        latest_s = max(latest_s, elapsed_s)
        yield record, elapsed_s
