"""A data source that is a user's own class, named in a spec as `python:package.module.Class`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from alray.data.resize import resize
from alray.data.source import Normalisation, SampleSet, Source, SplitName
from alray.errors import DataError


@dataclass(frozen=True)
class ResizedSet:
    """Another set with its pictures resized to `size` pixels of height and width."""

    samples: SampleSet
    size: int

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        sample, label = self.samples[index]
        return resize(sample, (self.size, self.size)), label


class PythonSource(Source):
    """Wraps an object with `classes` and `open(split)`; it may have `normalisation` and `read_image(path)`.

    `open("test")` may return None. Loader workers get its sets pickled, and import their module.
    """

    def __init__(self, reference: str, made: type, fields: Mapping[str, Any], *, image_size: int | None) -> None:
        """made: the class that `reference` names; its constructor gets `fields`."""
        self._reference = reference
        self._size = image_size
        if not callable(getattr(made, "open", None)):
            raise self._wrong("has no method open(split)")
        try:
            inspect.signature(made).bind(**fields)
        except TypeError as error:
            raise self._wrong(f"does not take these fields: {error}") from error
        self._inner = made(**fields)
        classes = getattr(self._inner, "classes", None)
        if not isinstance(classes, tuple | list) or not classes or not all(isinstance(c, str) for c in classes):
            raise self._wrong(f"needs `classes`, names of the classes, and has {classes!r}")
        self._classes = tuple(classes)
        self.normalisation = getattr(self._inner, "normalisation", None)
        if not isinstance(self.normalisation, Normalisation | None):
            raise self._wrong("needs a `normalisation` of type alray.data.dataset.Normalisation, or None")

    @property
    def classes(self) -> tuple[str, ...]:
        return self._classes

    def open(self, split: SplitName) -> SampleSet | None:
        samples = self._inner.open(split)
        if samples is None:
            return None
        if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
            raise self._wrong(f"open({split!r}) returned {type(samples).__name__}, which is not a sized, indexable set")
        return samples if self._size is None else ResizedSet(samples, self._size)

    def read_image(self, path: Path) -> Tensor:
        if not callable(getattr(self._inner, "read_image", None)):
            return super().read_image(path)
        sample = self._inner.read_image(path)
        return sample if self._size is None else resize(sample, (self._size, self._size))

    def _wrong(self, why: str) -> DataError:
        return DataError(
            f"`{self._reference}` {why}",
            key="data.source",
            mend="a data source has `classes`, open(split), and a constructor that takes the spec's keys",
        )
