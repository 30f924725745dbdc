"""Shapes of one sample, without the batch dimension."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class Shape(tuple[int, ...]):
    """Sizes of one sample, such as `(channels, height, width)`, with the type of its values; otherwise a plain tuple.

    `dtype` is the type of the values. `words`, for text only, gives the word of each number, "<pad>" and "<unk>" first.
    `tokens`, for windows of tokens, is the number of tokens. No row of these is shorter than the others.
    """

    dtype: torch.dtype
    words: tuple[str, ...] | None
    tokens: int | None

    def __new__(
        cls,
        sizes: Iterable[int],
        dtype: torch.dtype = torch.float32,
        words: tuple[str, ...] | None = None,
        tokens: int | None = None,
    ) -> Shape:
        shape = super().__new__(cls, (int(size) for size in sizes))
        shape.dtype = dtype
        shape.words = words
        shape.tokens = tokens
        return shape

    @property
    def elements(self) -> int:
        """Number of values in one sample."""
        product = 1
        for size in self:
            product *= size
        return product

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample."""
        return self.elements * self.dtype.itemsize

    def of_length(self, positions: int) -> Shape:
        """The shape of a sequence `(T, ...)` with another number of positions."""
        return Shape((positions, *self[1:]), self.dtype, self.words, self.tokens)

    def as_json(self) -> list[int | str]:
        """The sizes and the name of the type, without words."""
        return [*self, str(self.dtype).removeprefix("torch.")]

    @classmethod
    def from_json(cls, value: list[int | str], like: Shape | None = None) -> Shape:
        """The shape of which `as_json` gave `value`, with the words or the number of tokens of `like`."""
        *sizes, dtype = value
        words, tokens = (None, None) if like is None else (like.words, like.tokens)
        return cls((int(size) for size in sizes), getattr(torch, str(dtype)), words, tokens)

    def empty(self, samples: int, device: str | torch.device) -> torch.Tensor:
        """An uninitialised batch `[samples, *self]`."""
        return torch.empty((samples, *self), dtype=self.dtype, device=device)
