"""Data that are not there: their sizes are known, and their samples are noise, for a plan."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from alray.config.sections.expected import Expected
from alray.data.source import generator
from alray.data.split import Augment, EpochPosition, Split
from alray.data.vocabulary import PADDING, SPECIALS, Vocabulary
from alray.models.task import LearningTask


class AssumedSplit(Split):
    """A number of samples of one shape: noise, or as many random words as a document may have."""

    def __init__(self, samples: int, expected: Expected, task: LearningTask) -> None:
        """
        Args:
            expected: with shape and classes.
        """
        assert expected.shape is not None and expected.classes is not None
        dtype = torch.float32 if expected.words is None and not expected.tokens else torch.int64
        super().__init__(expected.shape, dtype, tuple(f"class_{number}" for number in range(expected.classes)))
        self._task = task
        self._samples = samples
        self._words = expected.words
        self._tokens = expected.classes if expected.tokens else None

    def __len__(self) -> int:
        return self._samples

    def take(
        self, positions: Sequence[int] | Tensor, augment: Augment | None = None, at: EpochPosition | None = None
    ) -> tuple[Tensor, Tensor]:
        drawn = generator(0, "assumed", len(positions))
        size = (len(positions), *self.shape)
        if self._tokens is not None:
            samples = torch.randint(self._tokens, size, generator=drawn)
        elif self._words is None:
            samples = torch.rand(size, generator=drawn)
        else:
            samples = torch.randint(PADDING + 1, self._words, size, generator=drawn)
        if self._task.label_shape:
            return samples, torch.zeros(len(positions), *self._task.label_shape, dtype=self._task.label_dtype)
        return samples, torch.as_tensor(positions, dtype=torch.int64) % len(self.classes)

    def mask(self, samples: Tensor) -> Tensor | None:
        return None if self._words is None else samples != PADDING


def assumed_vocabulary(words: int, tokenizer: str, max_tokens: int) -> Vocabulary:
    """A vocabulary of this many words that no document has."""
    made_up = (f"word_{number}" for number in range(len(SPECIALS), words))
    return Vocabulary((*SPECIALS, *made_up), tokenizer, max_tokens)
