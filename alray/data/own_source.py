"""The class that users' sources may derive from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal


class OwnSource(ABC):
    """A source of the user: a set of samples, `data: {source: "python:my_data.Mine"}`.

    Any class with `classes` and `open` is a source; to derive from this one is a way to say so. The further keys of
    the spec's section `data` are the arguments of its constructor.
    """

    classes: Sequence[str]
    """Names of the classes, in the order of their numbers; of labels or targets in other tasks."""

    @abstractmethod
    def open(self, split: Literal["train", "validation", "test"]) -> Any:
        """The samples of a split: an object with a length whose entries are pairs of a sample and its label. None where
        there is no such split; the training set must be there.

        A sample is a tensor, a NumPy array or a PIL image, and a text where the section has `text`. A label is what the
        task takes: in classification the number of a class.
        """
