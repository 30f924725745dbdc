"""Shapes as blocks see them: one sample, without the batch dimension."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class Shape(tuple[int, ...]):
    """Sizes of one sample, e.g. `(channels, height, width)`, with the type of its values.

    A plain tuple to index and unpack; `dtype` says what the values are, and `words` what they stand for: of text, the
    word of each number, with "<pad>" and "<unk>" first; None of everything else.
    """

    dtype: torch.dtype
    words: tuple[str, ...] | None

    def __new__(
        cls, sizes: Iterable[int], dtype: torch.dtype = torch.float32, words: tuple[str, ...] | None = None
    ) -> Shape:
        shape = super().__new__(cls, (int(size) for size in sizes))
        shape.dtype = dtype
        shape.words = words
        return shape

    @property
    def elements(self) -> int:
        """Values in one sample."""
        product = 1
        for size in self:
            product *= size
        return product

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self.elements * self.dtype.itemsize

    def empty(self, samples: int, device: str | torch.device) -> torch.Tensor:
        """An uninitialised batch `[samples, *self]`."""
        return torch.empty((samples, *self), dtype=self.dtype, device=device)
