"""What a data source is: named classes and, for each split, samples or documents with labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor

from alray.data.picture import Picture
from alray.errors import DataError
from alray.seeds import derive_seed


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator for one purpose; torch's global generator is never touched."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


SplitName = Literal["train", "test"]


class SampleSet(Protocol):
    """A sized, indexable set. All samples have one shape.

    A sample is a tensor: uint8 (scaled to 0..1 as pictures are) or floating point (taken as it is).
    A label is an integer from 0 to the number of classes - 1.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Tensor, int]: ...


@dataclass(frozen=True)
class TensorSet:
    """A set held in memory, from which a whole mini-batch is taken by one indexing operation.

    samples: [N, ...] uint8 or floating point; labels: [N] int64.
    """

    samples: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        """Raises DataError where the labels do not fit the samples."""
        if self.labels.dtype != torch.int64 or self.labels.shape != self.samples.shape[:1]:
            raise DataError(
                f"labels of type {self.labels.dtype} and shape {list(self.labels.shape)} do not fit samples of "
                f"shape {list(self.samples.shape)}",
                key="data",
                mend="give one int64 label for each sample",
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.samples[index], int(self.labels[index])


@dataclass(frozen=True)
class Normalisation:
    """(x - mean) / std, per channel; the first dimension of a sample is its channels."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, samples: Tensor) -> Tensor:
        """A new tensor. samples: [N, channels, ...] floating point."""
        shape = (1, len(self.mean)) + (1,) * (samples.dim() - 2)
        mean = torch.tensor(self.mean, dtype=samples.dtype).view(shape)
        std = torch.tensor(self.std, dtype=samples.dtype).view(shape)
        return (samples - mean).div_(std)


class Source(ABC):
    """Where samples come from. Sets hold samples before augmentation and normalisation."""

    #: Applied to every sample after augmentation; None leaves samples as they are.
    normalisation: Normalisation | None = None
    #: How a picture file becomes a sample; None where samples are not pictures, or own code reads them.
    picture: Picture | None = None

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label counts into them."""

    @abstractmethod
    def open(self, split: SplitName) -> SampleSet | None:
        """The set of a split; None where there is no test set. Raises DataError where data is missing."""

    def read_image(self, path: Path) -> Tensor:
        """A picture file as one sample of this source, before normalisation: [channels, height, width].

        Raises DataError where the file is missing or damaged, or samples of this source are not pictures.
        """
        if self.picture is not None:
            return self.picture.read(path)
        raise DataError(
            "this data source does not say how a picture becomes a sample",
            key="data.source",
            mend="give the source a method read_image(path) that returns a sample",
        )


@dataclass(frozen=True)
class TextSet:
    """Documents and the number of each one's class."""

    texts: Sequence[str]
    labels: Sequence[int]

    def __post_init__(self) -> None:
        """Raises DataError where the labels do not fit the documents."""
        if len(self.texts) != len(self.labels):
            raise DataError(
                f"{len(self.labels)} labels for {len(self.texts)} documents",
                key="data",
                mend="give one label for each document",
            )

    def __len__(self) -> int:
        return len(self.texts)


class TextSource(ABC):
    """Where documents come from. `open` gives them whole; the words are cut and counted by `alray.data.text_data`."""

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label counts into them."""

    @abstractmethod
    def open(self, split: SplitName) -> TextSet | None:
        """The documents of a split; None where there is no test set. Raises DataError where data is missing."""
