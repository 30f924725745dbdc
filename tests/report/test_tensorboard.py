"""TensorBoard's event files, read back."""

import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import ModuleType

import pytest
from tensorboardX.proto.event_pb2 import Event

from alray.core.run_folder.records import EventRecord, Record, Thinning, read
from alray.report.trackers.points import Points
from alray.report.trackers.tensorboard import TensorBoard, write_tensorboard


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file: a length (8 bytes), its checksum (4), the message, its checksum (4)."""
    data = path.read_bytes()
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        yield Event.FromString(data[at + 12 : at + 12 + length])
        at += 12 + length + 4


def scalars(directory: Path) -> dict[str, list[tuple[int, float, float]]]:
    (file,) = directory.iterdir()
    found: dict[str, list[tuple[int, float, float]]] = {}
    for event in read_events(file):
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value, event.wall_time))
    return found


class Board:
    """TensorBoard, given the points of records as a run does it."""

    def __init__(self, directory: Path) -> None:
        self._points, self._board = Points(), TensorBoard(directory)

    def take(self, record: Record) -> None:
        if given := self._points.take(record):
            self._board.write(given)

    def close(self) -> None:
        if given := self._points.rest():
            self._board.write(given)
        self._board.end("finished")


STARTED = 1_790_000_000.0
"""When the runs of these tests were started, as `time.time()`."""


def dated(given: ModuleType, kind: str, step: int, time_s: float) -> EventRecord:
    date = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(STARTED + time_s))
    return given.event(kind, step, time_s).model_copy(update={"date": date})


def test_scalars_read_back(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    board = Board(tmp_path / "tensorboard")
    for record in [dated(given, "started", 0, 0.0), *given.example_records(plan)[1:]]:
        board.take(record)
    found = scalars(tmp_path / "tensorboard")  # the file is complete although it is not closed
    assert sorted(found) == [
        *(f"accuracy/depth-{depth}/{split}" for depth in (1, 2) for split in ("test", "validation")),
        *("accuracy/test", "accuracy/train", "accuracy/validation"),
        *("loss_associated/component_00", "loss_associated/component_01"),
        *("loss_autoencoder/component_00", "loss_autoencoder/component_01"),
        *("lr", "memory_bytes/stage-0", "memory_bytes/stage-1", "samples_per_s"),
        *("utilisation/stage-0", "utilisation/stage-1"),
    ]
    assert [step for step, _, _ in found["loss_associated/component_01"]] == list(range(1, 41))
    assert found["loss_associated/component_01"][0][1:] == pytest.approx((4.0, STARTED + 1.005))
    assert found["accuracy/depth-1/validation"][0] == (10, 0.5, pytest.approx(STARTED + 1.1))
    assert found["samples_per_s"][0][1] == pytest.approx(64 / 0.005)
    assert found["memory_bytes/stage-1"][0][1] == 1_000_000
    # 4 ms of work and 1 ms of waiting; the first ten mini-batches are a warm-up.
    assert [step for step, *_ in found["utilisation/stage-1"]] == [20, 30, 40]
    assert found["utilisation/stage-1"][0][1] == pytest.approx(0.8)


def test_a_run_folder_that_was_deleted_is_not_made_again(given: ModuleType, tmp_path: Path) -> None:
    board = Board(tmp_path / "deleted" / "tensorboard")
    with pytest.raises(FileNotFoundError):
        for record in given.example_records(given.example_plan()):
            board.take(record)


def test_it_is_written_while_the_run_goes_on_and_not_before_its_first_mini_batches(
    given: ModuleType, tmp_path: Path
) -> None:
    directory = tmp_path / "tensorboard"
    board = Board(directory)
    for record in (given.planned(given.example_plan(), 0, 0.0), given.step(1, 0.1), given.step(2, 0.2)):
        board.take(record)
    assert not directory.exists()
    board.take(given.staged(10, 1.0, 0))
    assert [step for step, *_ in scalars(directory)["lr"]] == [1, 2]
    board.take(given.step(11, 1.1))
    board.close()
    assert [step for step, *_ in scalars(directory)["lr"]] == [1, 2, 11]


def test_lost_work_is_forgotten(given: ModuleType, tmp_path: Path) -> None:
    """TensorBoard drops what it has read of the steps from a restart on."""
    board = Board(tmp_path)
    for record in (given.planned(given.example_plan(), 0, 0.0), given.step(11, 1.0), given.event("resumed", 10, 2.0)):
        board.take(record)
    board.close()
    (file,) = tmp_path.iterdir()
    restarts = [event.step for event in read_events(file) if event.HasField("session_log")]
    assert restarts == [11]


def test_a_long_run_is_thinned_out_as_in_the_records(given: ModuleType, tmp_path: Path) -> None:
    records = [given.step(number, 0.1 * number, {0: {"associated": float(number)}}) for number in range(4000, 4200)]
    board, thinning = Board(tmp_path), Thinning()
    for record in (given.planned(given.example_plan(), 0, 0.0), *records):
        board.take(record)
    board.close()
    kept = [record.step for record in map(thinning.take, records) if record is not None]
    assert [step for step, *_ in scalars(tmp_path)["lr"]] == [*kept, 4199]
    assert scalars(tmp_path)["loss_associated/component_00"][-2][:2] == (4198, 4197.5)


def test_a_report_leaves_what_a_run_wrote_and_writes_what_is_missing(given: ModuleType, tmp_path: Path) -> None:
    records = [given.planned(given.example_plan(), 0, 0.0), given.step(1, 0.1)]
    for steps in ([1], [1]):
        write_tensorboard(records, tmp_path)
        assert [step for step, *_ in scalars(tmp_path)["lr"]] == steps
        records.append(given.step(2, 0.2))


@pytest.mark.full
def test_a_run_writes_it_with_the_date_of_each_record(run_dir: Path) -> None:
    events = [record for record in read(run_dir / "records.jsonl") if isinstance(record, EventRecord)]
    started, ended = (datetime.fromisoformat(record.date or "").timestamp() for record in (events[0], events[-1]))
    assert abs(ended - time.time()) < 600
    found = scalars(run_dir / "tensorboard")
    assert {"accuracy/depth-1/test", "loss_associated/component_01", "samples_per_s"} <= set(found)
    assert not any(tag.startswith("utilisation") for tag in found), "the stages take turns"
    walls = [wall_s for points in found.values() for _, _, wall_s in points]
    assert started < min(walls) and max(walls) < ended + 0.01


@pytest.mark.full
def test_its_library_is_imported_with_the_first_file() -> None:
    code = "import sys, alray.report.trackers.tensorboard; print('tensorboardX' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
