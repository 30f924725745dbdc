"""What a split of a run is: samples and labels in a fixed order, read as mini-batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

#: From one sample in 0..1 and its place in the mini-batch to the augmented sample, of the same shape.
Augment = Callable[[Tensor, int], Tensor]


class Split(ABC):
    """A sized set of (sample, label) in a fixed order."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, classes: tuple[str, ...]) -> None:
        """shape, dtype: of one sample as the model gets it (of text: the longest there is)."""
        self.shape = shape
        self.dtype = dtype
        self.classes = classes

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, positions: Sequence[int] | Tensor, augment: Augment | None = None) -> tuple[Tensor, Tensor]:
        """A mini-batch: samples [N, *shape] ([N, T] of text) in default strides, labels [N] int64."""

    def mask(self, samples: Tensor) -> Tensor | None:
        """Where samples that `take` gave hold a word, [N, T] bool; None where samples are no words."""
        return None

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        samples, labels = self.take([range(len(self))[position]])
        return samples[0], int(labels[0])
