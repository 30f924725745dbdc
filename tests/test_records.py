"""records.jsonl: what is written is read back, and a long run leaves a small file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

from alray.core.errors import CheckpointError
from alray.core.run_folder.records import (
    EACH_UNTIL,
    CheckpointRecord,
    EventRecord,
    Record,
    StepRecord,
    Writer,
    read,
)

PER_EPOCH = 300
THIRD = 0.3333333432674408
"""A value of float32."""


def losses(step: int, value: float = THIRD) -> StepRecord:
    named = {component: {"associated": value / (1 + component), "autoencoder": value} for component in range(4)}
    return StepRecord(**place(step), losses=named, lr=1e-3)


def place(step: int) -> dict[str, float]:
    return {"time_s": 0.02 * step, "step": step, "epoch": step / PER_EPOCH, "samples": 64 * step - step // PER_EPOCH}


def warning(message: str) -> EventRecord:
    return EventRecord(**place(1), event="warning", message=message, date="1970-01-01T00:00:00+00:00")


def written(folder: Path, *records: Record) -> Path:
    file = folder / "records.jsonl"
    writer = Writer(file)
    for record in records:
        writer.write(record)
    writer.close()
    return file


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    records = [losses(step, THIRD / step) for step in range(1, 700)]
    file = written(tmp_path, *records)
    for before, after in zip(records, read(file), strict=True):
        assert after.losses[0] == pytest.approx(before.losses[0], rel=1e-8)
        assert after.time_s == pytest.approx(before.time_s, abs=1e-7)
        assert after == before.model_copy(update={"losses": after.losses, "time_s": after.time_s})
    assert len(file.read_text().splitlines()) < 10
    first = next(record for record in read(file) if isinstance(record, StepRecord))
    assert numpy.float32(first.losses[0]["autoencoder"]) == numpy.float32(THIRD), "enough digits for float32"


def test_a_long_run_leaves_a_small_file(tmp_path: Path) -> None:
    """Every loss of the first mini-batches, and means after that: 1.9 MB after 100,000 mini-batches of this network."""
    count = 5 * EACH_UNTIL
    file = written(tmp_path, *(losses(step, float(step)) for step in range(1, count + 1)))
    assert file.stat().st_size < 130 * (1 + 1 / 2 + 2 / 4 + 1 / 8) * EACH_UNTIL
    steps = [record for record in read(file) if isinstance(record, StepRecord)]
    assert [record.step for record in steps[:EACH_UNTIL]] == list(range(1, EACH_UNTIL + 1))
    assert sum(record.mini_batches for record in steps) == steps[-1].step == count
    for record in (steps[EACH_UNTIL], steps[-1]):  # the values are the numbers of the mini-batches
        assert record.losses[0]["autoencoder"] == record.step - (record.mini_batches - 1) / 2
    assert (steps[EACH_UNTIL].mini_batches, steps[-1].mini_batches) == (2, 8)


def with_extra(record: StepRecord) -> StepRecord:
    """Component 1 has one more loss, whose value is the number of the mini-batch."""
    more = {**record.losses, 1: {**record.losses[1], "extra": float(record.step)}}
    return record.model_copy(update={"losses": more})


def test_a_loss_that_comes_and_goes_keeps_its_values(tmp_path: Path) -> None:
    def extra(file: Path) -> list[tuple[int, float | None]]:
        steps = [record for record in read(file) if isinstance(record, StepRecord)]
        assert all(len(record.losses[1]) - ("extra" in record.losses[1]) == 2 for record in steps)
        return [(record.step, record.losses[1].get("extra")) for record in steps]

    numbers = range(1, 40)
    (tmp_path / "early").mkdir()
    early = written(
        tmp_path / "early", *(with_extra(losses(step)) if step % 3 == 0 else losses(step) for step in numbers)
    )
    assert extra(early) == [(step, float(step) if step % 3 == 0 else None) for step in numbers]
    # A mean is over the mini-batches that have the loss.
    first = 2 * EACH_UNTIL + 1
    late = written(
        tmp_path,
        *(
            with_extra(losses(step)) if step in (first + 1, first + 3) else losses(step)
            for step in range(first, first + 8)
        ),
    )
    assert extra(late) == [(first + 3, first + 2.0), (first + 7, None)]


def test_no_loss_is_missing_from_before_a_checkpoint(tmp_path: Path) -> None:
    """What is written while the run goes on is there although the run is killed."""
    writer = Writer(tmp_path / "records.jsonl")
    for step in range(2 * EACH_UNTIL - 3, 2 * EACH_UNTIL + 2):
        writer.write(losses(step))
    writer.write(CheckpointRecord(**place(2 * EACH_UNTIL + 1), path="checkpoints/x", bytes=1, duration_s=0.1))
    found = [(record.kind, record.step, getattr(record, "mini_batches", None)) for record in read(writer.path)]
    assert found == [("step", 8190, 2), ("step", 8192, 2), ("step", 8193, 1), ("checkpoint", 8193, None)]


def test_losses_are_not_held_back_for_long(tmp_path: Path) -> None:
    """The first is written at once."""
    writer = Writer(tmp_path / "records.jsonl")
    for step, there in ((1, [1]), (2, [1]), (300, [1, 2, 300]), (301, [1, 2, 300])):
        writer.write(losses(step))
        assert [record.step for record in read(writer.path)] == there


@pytest.mark.parametrize("other", [3, 5])
def test_records_of_another_version_are_refused(tmp_path: Path, other: int) -> None:
    file = written(tmp_path, EventRecord(**place(3), event="started", message="x", date="1970-01-01T00:00:00+00:00"))
    file.write_text(file.read_text().replace('"v":4', f'"v":{other}'))
    with pytest.raises(CheckpointError, match=f"a record of version {other}; this alray reads version 4") as caught:
        list(read(file))
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (str(file), 1) and problem.hint


@pytest.mark.parametrize(
    ("key", "value"), [("lr", [0.001, 0.001]), ("losses", {"0": {"associated": []}}), ("epoch", 0)]
)
def test_a_damaged_line_of_losses_is_named(tmp_path: Path, key: str, value: object) -> None:
    file = written(tmp_path, losses(1), losses(2))
    last = file.read_text().splitlines()[-1]
    file.write_text(json.dumps({**json.loads(last), key: value}) + "\n")
    with pytest.raises(CheckpointError, match=r"records\.jsonl:1: not a record: steps: its "):
        list(read(file))


def test_a_line_that_was_cut_off_is_left_out_and_then_removed(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    writer = Writer(file)
    said = ["a sign that some take for the end of a line: \u2028", "b"]
    writer.write(warning(said[0]))
    assert messages_in(file) == said[:1]
    writer.close()
    with file.open("a") as cut_off:
        cut_off.write('{"kind": "ev')
    assert messages_in(file) == said[:1]
    again = Writer(file)
    again.write(warning(said[1]))
    assert messages_in(file) == said
    again.close()


def messages_in(file: Path) -> list[str]:
    return [record.message for record in read(file) if isinstance(record, EventRecord)]
