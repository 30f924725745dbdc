"""A data source that is a user's class."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from alray.core.errors import DataError, UserCodeError
from alray.data.batches import EvaluationBatches, TrainBatches
from alray.data.dataset import Dataset
from alray.data.opening import open_data
from tests.data import sections as spec
from tests.data.predicted import inputs

SQUARES = """
import torch

class Squares:
    classes = ("small", "large")

    def __init__(self, count, side=4):
        self.count, self.side = count, side

    def open(self, split):
        return None if split == "test" else SquareSet(self.count, self.side)

    def read_image(self, path):
        return torch.full((1, self.side, self.side), 0.5)

class SquareSet:
    def __init__(self, count, side):
        self.count, self.side = count, side

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((1, self.side, self.side), index / self.count), index % 2
"""


def load(reference: str) -> Any:
    module, name = reference.removeprefix("python:").rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def opened(name: str, **keys: Any) -> Dataset:
    section = {"source": f"python:own_data.{name}", "batch_size": 4, "validation_fraction": 0.0, **keys}
    return open_data(spec.OwnData(**section), seed=0, load=load)


def test_a_users_source_with_its_fields(own_module: Callable[[str], None]) -> None:
    own_module(SQUARES)
    data = opened("Squares", count=12, side=3)
    assert (len(data.train), data.classes, data.sample_shape) == (12, ("small", "large"), (1, 3, 3))
    assert data.splits["test"] is None
    assert data.train[6][0].flatten().tolist() == [0.5] * 9
    assert next(inputs(data, "any.png")).shape == (1, 3, 3)


def test_a_source_that_cannot_read_pictures(own_module: Callable[[str], None]) -> None:
    own_module(SQUARES.replace("def read_image", "def unused"))
    with pytest.raises(DataError) as caught:
        next(inputs(opened("Squares", count=12), "any.png"))
    assert caught.value.problems[0].key == "data.source"


DRAWN = """
import random

import numpy
import torch

class Drawn:
    classes = ("even", "odd")

    def __init__(self):
        self.offset = random.random() + float(numpy.random.rand()) + float(torch.rand(1))

    def open(self, split):
        return DrawnSet(self.offset)

class DrawnSet:
    def __init__(self, offset):
        self.offset = offset

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 11 and self.offset < 0:
            raise KeyError("nothing there")
        drawn = [random.random(), float(numpy.random.rand()), float(torch.rand(1)), self.offset]
        return torch.tensor(drawn), index % 2
"""


def states() -> tuple[bytes, list[int], tuple[Any, ...]]:
    of_torch = torch.random.get_rng_state().numpy().tobytes()
    return of_torch, numpy.random.get_state()[1].tolist(), random.getstate()


@pytest.mark.full
def test_what_a_source_draws_depends_on_seed_epoch_and_position_only(own_module: Callable[[str], None]) -> None:
    """In three generators, in every run, with any number of workers, from any step; all stay as they were."""
    own_module(DRAWN)

    def samples(seed: int, start: int, workers: int) -> list[torch.Tensor]:
        for generator in (random, numpy.random, torch.random):
            generator.seed()
        before = states()
        section = spec.OwnData(source="python:own_data.Drawn", batch_size=4, validation_fraction=0.0)
        data = open_data(section, seed=seed, load=load)
        with TrainBatches(data, seed=seed, start_step=start, end_step=6, workers=workers) as batches:
            read = [batch.samples for batch in batches]
        evaluated = [batch.samples for batch in EvaluationBatches(data, "test")]
        assert states() == before
        return read + evaluated

    whole = samples(1, 0, 0)
    assert len(torch.cat(whole[:6])[:, :3].unique()) == 2 * 12 * 3, "an epoch repeats what another one drew"
    for start, workers in ((0, 1), (4, 0)):
        assert all(map(torch.equal, samples(1, start, workers), whole[start:]))
    assert not torch.equal(samples(2, 0, 0)[0], whole[0])


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_source_that_raises_is_named(own_module: Callable[[str], None], workers: int) -> None:
    own_module(DRAWN.replace("random.random() + float", "-9 + float"))
    data = opened("Drawn")
    with (
        pytest.raises(UserCodeError) as caught,
        TrainBatches(data, seed=0, start_step=0, end_step=3, workers=workers) as batches,
    ):
        list(batches)
    (problem,) = caught.value.problems
    assert problem.message == ("the data source raised KeyError in reading sample 11 of split `train`: 'nothing there'")
    assert (Path(problem.file or "").name, problem.key) == ("own_data.py", "data.source")
    assert problem.traceback is not None and 'raise KeyError("nothing there")' in problem.traceback


LETTERS = """
class Letters:
    classes = ["vowels", "consonants"]

    def __init__(self, entries):
        self.entries = [tuple(entry) for entry in entries]

    def open(self, split):
        return self.entries if split == "train" else None
"""


def test_documents_of_ones_own(own_module: Callable[[str], None]) -> None:
    own_module(LETTERS)
    entries = [["a e i", 0], ["b c d f g", 1], ["o u a", 0], ["b d", 1]]
    data = opened("Letters", entries=entries, text={"max_tokens": 4})
    assert (len(data.train), data.classes) == (4, ("vowels", "consonants"))
    assert data.sample_shape.words is not None
    samples, labels = data.train.take([0, 1])
    assert labels.tolist() == [0, 1]
    assert samples.tolist() == [
        [*next(inputs(data, "a e i")).tolist(), 0],
        next(inputs(data, "b c d f")).tolist(),
    ]
