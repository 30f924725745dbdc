"""A split of documents: mini-batches of word numbers, as wide as the longest document in them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from alray.data.documents import Documents
from alray.data.split import Augment, Split
from alray.data.vocabulary import PADDING


class TextSplit(Split):
    """Samples are rows of word numbers, int64, PADDING behind the last word."""

    def __init__(
        self,
        documents: Documents,
        labels: Tensor,
        part: Tensor,
        *,
        classes: tuple[str, ...],
        max_tokens: int,
        fixed_length: bool,
    ) -> None:
        """part: [len(self)] int64, indices into `documents` and `labels` ([N] int64).

        fixed_length: every mini-batch is `max_tokens` wide, not as wide as its longest document.
        """
        super().__init__((max_tokens,), torch.int64, classes)
        self._documents = documents
        self._labels = labels
        self._part = part
        self._width = max_tokens if fixed_length else None

    def __len__(self) -> int:
        return len(self._part)

    def take(self, positions: Sequence[int] | Tensor, augment: Augment | None = None) -> tuple[Tensor, Tensor]:
        """A mini-batch: samples [N, T] int64, labels [N] int64. Documents have no augmentation."""
        assert augment is None, "refused when the data is opened"
        indices = self._part[torch.as_tensor(positions, dtype=torch.int64)]
        return self._documents.rows(indices, self._width), self._labels[indices]

    def mask(self, samples: Tensor) -> Tensor:
        # No word of a document has this number: see `places_of`.
        return samples != PADDING
