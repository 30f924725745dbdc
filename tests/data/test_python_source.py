"""A data source that is a user's own class."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.data.batches import TrainBatches
from alray.data.dataset import Data, open_data
from alray.errors import DataError
from alray.spec import data as spec

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


def opened(name: str, **keys: Any) -> Data:
    section = {"source": f"python:own_data.{name}", "batch_size": 4, "validation_fraction": 0.0, **keys}
    return open_data(spec.OwnData(**section), seed=0, load=load)


def test_a_users_source_with_its_fields(own_module: Callable[[str], None]) -> None:
    own_module(SQUARES)
    data = opened("Squares", count=12, side=3)
    assert (data.num_train, data.classes, data.sample_shape) == (12, ("small", "large"), (1, 3, 3))
    assert data.splits["test"] is None
    assert data.train[6][0].flatten().tolist() == [0.5] * 9
    assert data.read_image(Path("any.png")).shape == (1, 3, 3)


def test_loader_workers_import_its_module(own_module: Callable[[str], None]) -> None:
    own_module(SQUARES)
    data = opened("Squares", count=12, image_size=2)

    def first(workers: int) -> torch.Tensor:
        with TrainBatches(data, seed=0, start_step=0, end_step=1, workers=workers) as batches:
            return next(batches).samples

    assert torch.equal(first(0), first(1))


def test_a_source_that_cannot_read_pictures(own_module: Callable[[str], None]) -> None:
    own_module(SQUARES.replace("def read_image", "def unused"))
    with pytest.raises(DataError) as caught:
        opened("Squares", count=12).read_image(Path("any.png"))
    assert caught.value.problems[0].key == "data.source"


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
    assert (data.num_train, data.classes) == (4, ("vowels", "consonants"))
    assert data.vocabulary is not None
    samples, labels = data.train.take([0, 1])
    assert labels.tolist() == [0, 1]
    assert samples.tolist() == [
        [*data.read_text("a e i").tolist(), 0],
        data.read_text("b c d f").tolist(),
    ]
