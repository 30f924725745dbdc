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

MEND = "a data source has `classes`, open(split), and a constructor that takes the spec's keys"

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


def refused(name: str, **keys: Any) -> str:
    with pytest.raises(DataError) as caught:
        opened(name, **keys)
    return str(caught.value)


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


def test_fields_it_does_not_take(own_module: Callable[[str], None]) -> None:
    own_module(SQUARES)
    assert refused("Squares", count=12, colour="red") == (
        "data.source: `python:own_data.Squares` does not take these fields: "
        f"got an unexpected keyword argument 'colour'; {MEND}"
    )
    assert refused("Squares") == (
        "data.source: `python:own_data.Squares` does not take these fields: "
        f"missing a required argument: 'count'; {MEND}"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("classes = ('a',)", "has no method open(split)"),
        ("def open(self, split): ...", "needs `classes`, names of the classes, and has None"),
        ("classes = (1, 2)\n    def open(self, split): ...", "needs `classes`, names of the classes, and has (1, 2)"),
        (
            "classes = ('a',)\n    def open(self, split): return 7",
            "open('train') returned int, which is not a sized, indexable set",
        ),
        (
            "classes = ('a',)\n    normalisation = 0.5\n    def open(self, split): ...",
            "needs a `normalisation` of type alray.data.dataset.Normalisation, or None",
        ),
    ],
)
def test_a_class_that_is_no_source(own_module: Callable[[str], None], text: str, why: str) -> None:
    own_module(f"class Odd:\n    {text}\n")
    assert refused("Odd") == f"data.source: `python:own_data.Odd` {why}; {MEND}"


def test_a_source_without_a_training_set(own_module: Callable[[str], None]) -> None:
    own_module("class Odd:\n    classes = ('a',)\n    def open(self, split): return None\n")
    assert refused("Odd") == "data: there is no training set; open('train') has to return one"


def test_a_source_that_cannot_read_pictures(own_module: Callable[[str], None]) -> None:
    own_module(SQUARES.replace("def read_image", "def unused"))
    with pytest.raises(DataError) as caught:
        opened("Squares", count=12).read_image(Path("any.png"))
    assert str(caught.value) == (
        "data.source: this data source does not say how a picture becomes a sample; "
        "give the source a method read_image(path) that returns a sample"
    )
