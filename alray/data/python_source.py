"""Data sources that are the user's class, `python:package.module.Class` in a spec."""

from __future__ import annotations

import inspect
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex

from torch import Tensor

from alray.config.user_code import named
from alray.core.errors import DataError
from alray.data.given import GivenData
from alray.data.picture import resize
from alray.data.source import Normalisation, SampleSet, Source, SplitName, TextSet, TextSource
from alray.data.text_file import equal_line_ends
from alray.models.task import Label


class OwnSource(ABC):
    """A source of the user: a set of samples, `data: {source: "python:my_data.Mine"}`.

    Any class with `classes` and `open` is a source; to derive from this one is a way to say so. The further keys of
    the spec's section `data` are the arguments of its constructor.
    """

    classes: Sequence[str]
    """Names of the classes, in the order of their numbers; of labels or targets in other tasks."""

    @abstractmethod
    def open(self, split: SplitName) -> Any:
        """The samples of a split: an object with a length whose entries are pairs of a sample and its label. None where
        there is no such split; the training set must be there.

        A sample is a tensor, and a text where the section has `text`. A label is what the task takes: in classification
        the number of a class.
        """


@dataclass(frozen=True)
class ResizedSet:
    """A set whose pictures are resized to `size`, height and width in pixels."""

    samples: SampleSet
    size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, Label]:
        entry: Any = self.samples[index]
        match entry:
            case (Tensor() as sample, label):
                pass
            case _:
                return entry  # type: ignore[no-any-return]  # the caller checks it
        if sample.ndim != 3:
            raise DataError(
                f"samples of shape {list(sample.shape)} are not [channels, height, width]",
                key="data.image_size",
                hint="leave it out, or return samples of that shape",
            )
        return resize(sample, self.size), label


class OwnObject:
    """An object of the user's class. It has `classes` and `open(split)`; `open("test")` may return None.

    Loader workers get its sets by pickle and import their module.
    """

    def __init__(self, reference: str, made: type, fields: Mapping[str, Any]) -> None:
        """
        Args:
            made: the class that `reference` names.
            fields: the arguments of its constructor.

        Raises:
            DataError: if the class lacks something or does not take these fields.
        """
        self.name = f"`{reference}`"
        if not callable(getattr(made, "open", None)):
            raise self.wrong("has no method open(split)")
        try:
            inspect.signature(made).bind(**fields)
        except TypeError as error:
            raise self.wrong(f"does not take these fields: {error}") from error
        with named(self.name, "its constructor", key="data.source"):
            self.inner = made(**fields)
        classes = getattr(self.inner, "classes", None)
        if not isinstance(classes, tuple | list) or not classes or not all(isinstance(c, str) for c in classes):
            raise self.wrong(f"needs `classes`, the names of the classes, and has {classes!r}")
        self.classes = tuple(classes)

    def open(self, split: SplitName) -> Any:
        """Return the set of a split, or None. Raises DataError if it has no length or cannot be indexed."""
        with named(self.name, f"open({split!r})", key="data.source"):
            samples = self.inner.open(split)
        if samples is not None and not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
            raise self.wrong(f"open({split!r}) returned {type(samples).__name__}, which is not a sized, indexable set")
        return samples

    def wrong(self, why: str) -> DataError:
        """Return the error that says what the user's class lacks."""
        return DataError(
            f"{self.name} {why}",
            key="data.source",
            hint="a data source needs `classes`, open(split), and a constructor that takes the spec's keys",
        )


class PythonSource(Source):
    """Pictures or vectors from the user's class. The object may also have `normalisation`, `target_normalisation` for
    regressions, and `read_image(path)`."""

    own = True

    def __init__(self, own: OwnObject, *, size: tuple[int, int] | None) -> None:
        self._own = own
        self.classes = own.classes
        if isinstance(own.inner, GivenData):
            self.contents, self.numbers = own.inner.contents, own.inner.numbers
            self.several, self.notes = own.inner.several, own.inner.notes
        self._size = size
        self.normalisation = getattr(own.inner, "normalisation", None)
        self.target_normalisation = getattr(own.inner, "target_normalisation", None)
        for name in ("normalisation", "target_normalisation"):
            if not isinstance(getattr(self, name), Normalisation | None):
                raise own.wrong(f"needs a `{name}` of type alray.data.source.Normalisation, or None")

    def open(self, split: SplitName) -> SampleSet | None:
        samples: SampleSet | None = self._own.open(split)
        return samples if samples is None or self._size is None else ResizedSet(samples, self._size)

    def read_image(self, path: Path) -> Tensor:
        if not callable(getattr(self._own.inner, "read_image", None)):
            return super().read_image(path)
        with named(self._own.name, f"read_image({str(path)!r})", key="data.source"):
            sample: Tensor = self._own.inner.read_image(path)
        return sample if self._size is None else resize(sample, self._size)


class PythonTextSource(TextSource):
    """Documents from the user's class. The entries of its sets are pairs of a text and a label."""

    def __init__(self, own: OwnObject) -> None:
        self._own = own
        self.classes = own.classes
        if isinstance(own.inner, GivenData):
            self.contents = own.inner.contents

    def open(self, split: SplitName) -> TextSet | None:
        samples = self._own.open(split)
        if samples is None:
            return None
        texts, labels = [], []
        for index in range(len(samples)):
            with named(self._own.name, f"reading entry {index} of split `{split}`", key="data.source"):
                document = samples[index]
            match document:
                case (str(text), SupportsIndex() as label):
                    texts.append(equal_line_ends(text))
                    labels.append(operator.index(label))
                case entry:
                    raise self._own.wrong(
                        f"has {_brief(entry)} as entry {index} of split `{split}`; "
                        "with data.text, every entry must be a pair of a text and an integer label"
                    )
        return TextSet(texts, labels)


def _brief(entry: object) -> str:
    """Return the type of an entry, without its content."""
    if isinstance(entry, tuple | list):
        return f"({', '.join(type(part).__name__ for part in entry)})"
    return type(entry).__name__
