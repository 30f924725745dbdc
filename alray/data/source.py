"""The interface of a data source: named classes and, for each split, samples or documents with labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

from alray.core.errors import DataError
from alray.data.picture import Picture
from alray.models.several import Several
from alray.models.task import Label

if TYPE_CHECKING:
    from alray.data.table_file import RowReader


SplitName = Literal["train", "validation", "test"]
"""A set of a source. Few sources have their own validation set; it is opened only where `data` says that there is
one (`own_validation` of the section)."""


class SampleSet(Protocol):
    """A set of samples and labels with a length and an index. All samples have the same shape.

    A sample is a tensor of type uint8 (a picture, which is scaled to 0..1) or floating point (used unchanged); of a
    source with `numbers` a row of whole numbers. A label is an integer from 0 to the number of classes - 1; of other
    tasks than classification, float32 [outputs], or a tensor as the task takes it.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor, Label]: ...


@dataclass(frozen=True)
class TensorSet:
    """A set in memory. A mini-batch is read by one indexing operation.

    Attributes:
        samples: [N, ...] uint8 or floating point, or [N, T] int64 where the source has `numbers`.
        labels: [N] int64, class numbers; [N, outputs] float32 or float64; or as the task takes them.
        exact: whether floating-point samples have the same bits on every machine.
    """

    samples: Tensor
    labels: Tensor
    exact: bool = False

    def __post_init__(self) -> None:
        """Raises DataError if the labels do not fit the samples."""
        known = self.labels.dtype in (torch.int64, torch.float32, torch.float64)
        if not known or self.labels.shape[:1] != self.samples.shape[:1]:
            raise DataError(
                f"labels of type {self.labels.dtype} and shape {list(self.labels.shape)} do not fit samples of "
                f"shape {list(self.samples.shape)}",
                key="data",
                hint="give one int64 label for each sample, or a row of float32",
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Label]:
        label = self.labels[index]
        return self.samples[index], label if label.ndim or label.is_floating_point() else int(label)


@dataclass(frozen=True)
class Normalisation:
    """(x - mean) / std for each channel. The first dimension of a sample is its channels.

    What is float64 is computed in float64. So a large mean takes nothing from the numbers around it.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, samples: Tensor) -> Tensor:
        """Return the normalised samples as a new tensor.

        Args:
            samples: [N, channels, ...] floating point.
        """
        shape = (1, len(self.mean)) + (1,) * (samples.dim() - 2)
        mean = torch.tensor(self.mean, dtype=samples.dtype).view(shape)
        std = torch.tensor(self.std, dtype=samples.dtype).view(shape)
        return (samples - mean).div_(std)

    def undo(self, values: Tensor) -> Tensor:
        """Return what `apply` was given, float64 on the CPU.

        Args:
            values: [..., channels].
        """
        mean, std = (torch.tensor(each, dtype=torch.float64) for each in (self.mean, self.std))
        return values.cpu().double() * std + mean


class Source(ABC):
    """A source of samples. Its sets return samples before augmentation and normalisation."""

    #: Applied to every sample after augmentation; None for no normalisation.
    normalisation: Normalisation | None = None
    #: By which targets of a regression are standardised; None: they are not.
    target_normalisation: Normalisation | None = None
    #: Whether samples, in a `TensorSet`, and targets are standardised by those of the training split, in place of that.
    standardises_samples: bool = False
    standardises_targets: bool = False
    #: How many whole numbers there are, where samples are rows of them, [T] int64 from 0 on; None: samples are values.
    numbers: int | None = None
    #: The inputs of a sample, of which it is a row; None: it is one tensor.
    several: Several | None = None
    #: What the user should read of these data before a run, in sentences.
    notes: tuple[str, ...] = ()
    #: Whether a user's code reads the samples, which may draw random numbers and raise any error.
    own: bool = False
    #: SHA-256 of the samples of a user's code; None where they are not known.
    contents: str | None = None
    #: How a picture file becomes a sample; None if samples are not pictures or the user's code reads them.
    picture: Picture | None = None
    #: How a file of rows of numbers becomes samples; None if they are not read from tables.
    rows: RowReader | None = None
    #: The names of the classes, of which a label is the number; of the labels or the targets in other tasks.
    classes: tuple[str, ...]

    @abstractmethod
    def open(self, split: SplitName) -> SampleSet | None:
        """Return the set of a split, or None if there is no test set. Raises DataError if data is missing."""

    def files(self, split: SplitName) -> Sequence[Path]:
        """The picture files of a split, if each is read when it is its turn. Raises DataError if data is missing."""
        return ()

    def read_image(self, path: Path) -> Tensor:
        """Read a picture file as one sample [channels, height, width], before normalisation.

        Raises DataError if the file is missing or damaged, or if the samples of this source are not pictures.
        """
        if self.picture is not None:
            return self.picture.read(path)
        raise DataError(
            "nothing says how a file becomes a sample of these data",
            key="data.source",
            hint="predict in Python: run.network() is a torch module that takes samples; or add a method "
            "read_image(path) to the class of the source, which returns a sample",
        )


@dataclass(frozen=True)
class TextSet:
    """Documents and the number of the class of each."""

    texts: Sequence[str]
    labels: Sequence[int]

    def __post_init__(self) -> None:
        """Raises DataError if the labels do not fit the documents."""
        if len(self.texts) != len(self.labels):
            raise DataError(
                f"there are {len(self.labels)} labels for {len(self.texts)} documents",
                key="data",
                hint="give one label for each document",
            )

    def __len__(self) -> int:
        return len(self.texts)

    def at(self, indices: Iterable[int]) -> TextSet:
        """The documents with these indices, in this order."""
        chosen = list(indices)
        return TextSet([self.texts[index] for index in chosen], [self.labels[index] for index in chosen])


class TextSource(ABC):
    """A source of documents. `open` returns whole texts; `alray.data.text_data` turns them into word numbers."""

    #: What the user should read of these data before a run, in sentences.
    notes: tuple[str, ...] = ()
    #: As for `Source`.
    contents: str | None = None
    #: The names of the classes. A label is an index into them.
    classes: tuple[str, ...]

    @abstractmethod
    def open(self, split: SplitName) -> TextSet | None:
        """Return the documents of a split, or None if there is no test set. Raises DataError if data is missing."""
