"""A mini-batch is a function of (seed, epoch, position), whatever the workers and the step a run starts at."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

from alray.core.errors import DataError, ProcessLost
from alray.data.batches import Batch, EvaluationBatches, TrainBatches
from alray.data.dataset import Dataset
from alray.data.opening import open_data
from alray.runtime.stage.assemble import feed
from tests.data import sections as spec


def synthetic(**keys: object) -> Dataset:
    section = {"source": "synthetic", "shape": (1, 6, 6), "classes": 3, "samples": 40, "batch_size": 8, **keys}
    return open_data(spec.Synthetic(**section), seed=1, load=spec.no_code)


def pictures(folder: Path) -> Dataset:
    section = spec.ImageFolder(
        source="image_folder",
        train=folder / "train",
        test=folder / "test",
        image_size=8,
        batch_size=4,
        validation_fraction=0.1,
        augment="strong",
    )
    return open_data(section, seed=1, load=spec.no_code)


def collect(data: Dataset, start_step: int, end_step: int, *, workers: int = 0, seed: int = 1) -> list[Batch]:
    with TrainBatches(data, seed=seed, start_step=start_step, end_step=end_step, workers=workers) as batches:
        return list(batches)


def same(left: list[Batch], right: list[Batch]) -> bool:
    return len(left) == len(right) and all(
        a.step == b.step and torch.equal(a.samples, b.samples) and torch.equal(a.labels, b.labels)
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("augment", ["none", "strong"])
def test_a_run_that_starts_late_gets_the_same_bits(augment: str) -> None:
    data = synthetic(augment=augment)
    assert data.steps_per_epoch == 4
    whole = collect(data, 0, 13)
    assert [batch.step for batch in whole] == list(range(13))
    for start_step in (1, 4, 5, 11):
        assert same(whole[start_step:], collect(data, start_step, 13))


@pytest.mark.full
def test_closing_ends_the_workers_and_they_ignore_ctrl_c() -> None:
    data = synthetic()
    batches = TrainBatches(data, seed=1, start_step=0, end_step=50, workers=2)
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    for worker in workers:  # they are still starting: not yet told to ignore it
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGINT)
    first = [next(batches) for _ in range(6)]
    for worker in workers:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGINT)
    second = [next(batches) for _ in range(20)]
    assert same(first + second, collect(data, 0, 26))
    batches.close()
    batches.close()
    assert multiprocessing.active_children() == []
    assert list(batches) == []


LEFT = """\
import multiprocessing, os, signal, sys
from alray.data.batches import _begin_worker

def work():
    _begin_worker(1, 0)
    print("begun", flush=True)
    multiprocessing.parent_process().join()
    sys.excepthook(ConnectionResetError, ConnectionResetError(104, "Connection reset by peer"), None)
    sys.excepthook(ValueError, ValueError("another error"), None)

if __name__ == "__main__":
    multiprocessing.get_context("spawn").Process(target=work).start()
"""


@pytest.mark.full
def test_a_worker_whose_reader_was_killed_says_nothing_of_their_connection(tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text(LEFT)
    reader = subprocess.Popen([sys.executable, tmp_path / "left.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdout.readline() == b"begun\n"
    reader.kill()
    _, said = reader.communicate(timeout=60)  # the worker holds the pipe until it ends
    assert said.splitlines()[-1] == b"ValueError: another error"
    assert b"Connection reset" not in said


def test_an_epoch_holds_every_sample_once_in_an_order_of_its_own() -> None:
    data = synthetic(samples=32, validation_fraction=0.0)
    first, second = (torch.cat([b.samples for b in collect(data, e * 4, e * 4 + 4)]) for e in (0, 1))
    everything = data.train.take(range(32))[0]

    def rows(samples: torch.Tensor) -> list[list[float]]:
        return samples.flatten(1).tolist()

    assert sorted(rows(first)) == sorted(rows(second)) == sorted(rows(everything))
    assert rows(first) != rows(second)
    assert rows(first) != rows(everything)


def test_another_seed_gives_another_order() -> None:
    data = synthetic()
    assert not same(collect(data, 0, 3, seed=1), collect(data, 0, 3, seed=2))


def test_augmentation_is_drawn_anew_in_each_epoch() -> None:
    plain, strong = synthetic(augment="none"), synthetic(augment="strong")
    assert not same(collect(plain, 0, 1), collect(strong, 0, 1))
    one = synthetic(samples=1, classes=2, batch_size=1, validation_fraction=0.0, augment="strong")
    first, second = collect(one, 0, 2)
    assert not torch.equal(first.samples, second.samples)


def test_the_global_random_numbers_are_left_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    data = synthetic(augment="strong")
    collect(data, 2, 6)
    list(EvaluationBatches(data, "validation"))
    assert torch.equal(before, torch.get_rng_state())


def test_last_batch_keep_and_drop() -> None:
    dropped, kept = synthetic(last_batch="drop"), synthetic(last_batch="keep")
    assert (len(dropped.train), dropped.steps_per_epoch) == (36, 4)
    assert (len(kept.train), kept.steps_per_epoch) == (36, 5)
    assert [len(batch.labels) for batch in collect(dropped, 0, 5)] == [8, 8, 8, 8, 8]
    assert [len(batch.labels) for batch in collect(kept, 0, 6)] == [8, 8, 8, 8, 4, 8]


def test_what_a_batch_is_made_of() -> None:
    for augment in ("none", "strong"):
        batch = collect(synthetic(shape=(3, 1, 1), augment=augment), 0, 1)[0]
        assert batch.samples.shape == (8, 3, 1, 1)
        assert batch.samples.stride() == (3, 1, 1, 1)
        assert batch.samples.dtype == torch.float32
        assert batch.labels.shape == (8,)
        assert batch.labels.dtype == torch.int64


def test_evaluation_goes_in_order_and_keeps_the_last_partial_batch() -> None:
    data = synthetic(augment="strong")
    batches = EvaluationBatches(data, "train")
    assert len(batches) == 5
    got = list(batches)
    assert [batch.step for batch in got] == [0, 1, 2, 3, 4]
    assert [len(batch.labels) for batch in got] == [8, 8, 8, 8, 4]
    assert torch.equal(torch.cat([batch.samples for batch in got]), data.train.take(range(36))[0])
    assert same(got, list(batches))


def test_evaluation_of_a_split_that_is_not_there() -> None:
    with pytest.raises(DataError) as caught:
        EvaluationBatches(synthetic(validation_fraction=0.0), "validation")
    assert str(caught.value).startswith("data: there is no validation split; ")


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_damaged_picture_met_while_training(image_folder: Path, workers: int) -> None:
    data = pictures(image_folder)
    for path in sorted((image_folder / "train").rglob("*.png")):
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError) as caught:
        collect(data, 0, 4, workers=workers)
    problem = caught.value.problems[0]
    assert problem.message.startswith("damaged picture (")
    assert problem.file is not None
    assert problem.file.endswith(".png")


@pytest.mark.filterwarnings("ignore:Got pickle error")  # torch's word on it
def test_samples_that_cannot_be_sent_to_workers() -> None:
    class Local:
        classes = ("a", "b")

        def open(self, split: str) -> object:
            return LocalSet([(torch.zeros(2), 0)] * 8)

    class LocalSet(list):  # type: ignore[type-arg]
        pass

    section = spec.OwnData(source="python:here.Local", batch_size=2)
    data = open_data(section, seed=0, load=lambda reference: Local)
    with pytest.raises(DataError) as caught:
        TrainBatches(data, seed=0, start_step=0, end_step=2, workers=1)
    problem = caught.value.problems[0]
    assert problem.key == "data.workers"
    assert problem.message.startswith("the source's samples cannot be sent to loader workers: ")
    assert multiprocessing.active_children() == []


class Copies(TorchFunctionMode):
    """Keeps how the host waits for copies to a device, and takes every tensor's memory as pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.non_blocking: list[bool] = []
        self.pinned = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.to:
            self.non_blocking.append(bool((kwargs or {}).get("non_blocking")))
        if func is torch.Tensor.pin_memory:
            self.pinned += 1
            return args[0]
        return func(*args, **(kwargs or {}))


def test_a_gpu_copies_by_itself() -> None:
    """A batch can be pinned by the loader, and no copy of it holds the host up."""
    batch = Batch(3, torch.ones(2, 4), torch.zeros(2, dtype=torch.int64), torch.ones(2, 4, dtype=torch.bool))
    with Copies() as copies:
        ((_, tensors),) = feed(
            [batch.pin_memory()], lambda each: each.with_labels(torch.device("cpu"), torch.float64), None
        )
    assert copies.pinned == 3 and copies.non_blocking == [True, True, True]
    assert list(tensors) == ["s", "mask", "labels"] and tensors["s"].dtype == torch.float64


def test_a_worker_that_is_gone_may_end_the_thread_that_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with an error of the connection where the worker was killed before its tensors were read."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cpu"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr("torch.utils.data._utils.pin_memory._pin_memory_loop", lambda *queues: None)
    with (
        TrainBatches(synthetic(), seed=1, start_step=0, end_step=9, workers=1, pinned=True) as batches,
        pytest.raises(ProcessLost, match="a process that prepares mini-batches ended") as caught,
    ):
        batches._batches._pin_memory_thread.join()  # type: ignore[union-attr]
        next(batches)
    assert "Pin memory thread" in str(caught.value.__cause__)
