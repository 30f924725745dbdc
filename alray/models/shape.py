"""Shapes of one sample, without the batch dimension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from alray.models.several import Several


class Shape(tuple[int, ...]):
    """Sizes of one sample, such as `(channels, height, width)`, with the type of its values; otherwise a plain tuple.

    `dtype` is the type of the values. `words`, for text only, gives the word of each number, "<pad>" and "<unk>" first.
    `tokens`, for windows of tokens, is the number of tokens, and `numbers`, for rows of whole numbers from 0 on, how
    many of them there are. No row of a mini-batch of these is shorter than the others. `labels` is the shape of the
    label of one sample, where the data say it and not the task, and `several` says of which inputs a row consists.
    """

    dtype: torch.dtype
    words: tuple[str, ...] | None
    tokens: int | None
    numbers: int | None
    labels: Shape | None
    several: Several | None

    def __new__(
        cls,
        sizes: Iterable[int],
        dtype: torch.dtype = torch.float32,
        words: tuple[str, ...] | None = None,
        tokens: int | None = None,
        numbers: int | None = None,
        labels: Shape | None = None,
        several: Several | None = None,
    ) -> Shape:
        shape = super().__new__(cls, (int(size) for size in sizes))
        shape.dtype = dtype
        shape.words = words
        shape.tokens = tokens
        shape.numbers = numbers
        shape.labels = labels
        shape.several = several
        return shape

    @classmethod
    def of_samples(
        cls, sizes: Iterable[int], *, numbers: int | None, labels: Shape | None, several: Several | None
    ) -> Shape:
        """The shape of samples that are no text: values are float32."""
        dtype = several.dtype if several is not None else torch.float32 if numbers is None else torch.int64
        return cls(sizes, dtype, numbers=numbers, labels=labels, several=several)

    @property
    def is_text(self) -> bool:
        """Whether the rows of a mini-batch may be shorter: documents and windows of tokens."""
        return self.words is not None or self.tokens is not None

    @property
    def hint_of_numbers(self) -> str | None:
        """What to do where a module does not take rows of whole numbers. None: these are no such rows."""
        if self.whole_numbers is None:
            return None
        of_text = f"one of positions needs {self[0]}"
        return (
            f"`forward` gets whole numbers from 0 to {self.whole_numbers - 1}, int64: an nn.Embedding needs a row for "
            f"each; {of_text if self.is_text else 'if they are quantities, give samples.float()'}"
        )

    @property
    def whole_numbers(self) -> int | None:
        """How many whole numbers there are, where a sample is a row of them."""
        return len(self.words) if self.words is not None else self.tokens or self.numbers

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
        return self.like((positions, *self[1:]), self.dtype)

    def like(self, sizes: Iterable[int], dtype: torch.dtype) -> Shape:
        """Other sizes and another type of what is otherwise the same."""
        return Shape(sizes, dtype, self.words, self.tokens, self.numbers, self.labels, self.several)

    def as_json(self) -> list[int | str]:
        """The sizes and the name of the type, without words."""
        return [*self, str(self.dtype).removeprefix("torch.")]

    @classmethod
    def from_json(cls, value: list[int | str], like: Shape | None = None) -> Shape:
        """The shape of which `as_json` gave `value`, with the words or the number of tokens or numbers of `like`."""
        *sizes, dtype = value
        like = cls(()) if like is None else like  # one of no sizes is false
        return like.like((int(size) for size in sizes), getattr(torch, str(dtype)))

    def empty(self, samples: int, device: str | torch.device) -> torch.Tensor:
        """An uninitialised batch `[samples, *self]`."""
        return torch.empty((samples, *self), dtype=self.dtype, device=device)
