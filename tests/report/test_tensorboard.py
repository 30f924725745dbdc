"""TensorBoard's event files, read back."""

import struct
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tensorboardX.proto.event_pb2 import Event

from alray.report.tensorboard import write_tensorboard


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


def test_scalars_read_back(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    directory = write_tensorboard(given.example_records(plan), tmp_path / "tensorboard", stages=2)
    found = scalars(directory)
    assert sorted(found) == [
        *("accuracy/test", "accuracy/train", "accuracy/validation"),
        *("loss_associated/component_00", "loss_associated/component_01"),
        *("loss_autoencoder/component_00", "loss_autoencoder/component_01"),
        *("lr", "samples_per_s"),
    ]
    assert [step for step, _, _ in found["loss_associated/component_01"]] == list(range(1, 41))
    assert found["loss_associated/component_01"][0][1:] == pytest.approx((4.0, 1.005))
    assert found["accuracy/test"][-1][:2] == (40, pytest.approx(0.90))
    assert found["samples_per_s"][0][1] == pytest.approx(64 / 0.005)


def test_writing_again_replaces_the_file(given: ModuleType, tmp_path: Path) -> None:
    for _ in range(2):
        write_tensorboard([given.step(1, 0.1)], tmp_path / "tensorboard", stages=1)
    assert len(scalars(tmp_path / "tensorboard")["lr"]) == 1


def test_a_long_run_is_written_in_strides(given: ModuleType, tmp_path: Path) -> None:
    records = [given.step(number, 0.1 * number) for number in range(1, 11)]
    write_tensorboard(records, tmp_path / "tensorboard", stages=1, max_steps=4)
    assert [step for step, _, _ in scalars(tmp_path / "tensorboard")["lr"]] == [1, 4, 7, 10]


def test_a_clock_that_started_again_goes_on(given: ModuleType, tmp_path: Path) -> None:
    records = [
        given.event("started", 0, 0.0),
        given.step(1, 5.0),
        given.event("resumed", 1, 1.0),
        given.step(2, 1.5),
        given.event("resumed", 2, 3.0),  # after a failure the same command goes on, and its clock too
        given.step(3, 4.0),
    ]
    write_tensorboard(records, tmp_path / "tensorboard", stages=1)
    assert [time for _, _, time in scalars(tmp_path / "tensorboard")["lr"]] == [5.0, 5.5, 8.0]
