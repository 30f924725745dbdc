"""From documents to splits of word numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alray.core.errors import DataError
from alray.data.cache import cached
from alray.data.documents import Documents, Numbering
from alray.data.source import TextSet
from alray.data.split import Augment, EpochPosition, Split
from alray.data.vocabulary import PADDING, Vocabulary, make_tokenizer

if TYPE_CHECKING:
    from alray.config.sections import data as spec


def text_splits(
    train: TextSet,
    test: TextSet | None,
    *,
    train_part: Tensor,
    validation_part: Tensor,
    classes: tuple[str, ...],
    text: spec.Text,
    fixed_length: bool,
) -> tuple[TextSplit, TextSplit | None, TextSplit | None, Vocabulary]:
    """Return the training, validation and test split, and the vocabulary.

    The vocabulary has words of the training split only; other words of the validation and the test split become the
    unknown word.

    Args:
        train, test: documents that are prepared as `text.prepare` says.
        train_part, validation_part: indices into `train`, [n] int64.
    """

    def read_all() -> tuple[Numbering, Documents, Documents | None]:
        numbering = Numbering(make_tokenizer(text.tokenizer))
        return numbering, numbering.read(train.texts), numbering.read(test.texts) if test is not None else None

    numbering, read, read_test = cached("documents", (train, test, text.tokenizer), read_all)
    words, table = numbering.vocabulary(read, train_part, text.vocabulary_size)

    documents = read.renumbered(table, text.max_tokens)
    labels = _labels(train, "train", classes)

    def split(part: Tensor) -> TextSplit:
        return TextSplit(
            documents, labels, part, classes=classes, max_tokens=text.max_tokens, fixed_length=fixed_length
        )

    test_split = None
    if test is not None and read_test is not None:
        test_split = TextSplit(
            read_test.renumbered(table, text.max_tokens),
            _labels(test, "test", classes),
            torch.arange(len(test)),
            classes=classes,
            max_tokens=text.max_tokens,
            fixed_length=fixed_length,
        )
    vocabulary = Vocabulary(words, text.tokenizer, text.max_tokens, text.prepare)
    return split(train_part), split(validation_part) if len(validation_part) else None, test_split, vocabulary


def _labels(documents: TextSet, name: str, classes: tuple[str, ...]) -> Tensor:
    labels = torch.tensor(documents.labels, dtype=torch.int64)
    wrong = (labels < 0) | (labels >= len(classes))
    if wrong.any():
        index = int(wrong.nonzero()[0])
        raise DataError(
            f"document {index} of split `{name}` has label {int(labels[index])}, but there are {len(classes)} classes",
            key="data",
            hint=f"use labels from 0 to {len(classes) - 1}",
        )
    return labels


class TextSplit(Split):
    """Documents as rows of word numbers, int64, with PADDING after the last word.

    A mini-batch is as wide as its longest document, or as `max_tokens` with `fixed_length`.
    """

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
        """
        Args:
            part: [len(self)] int64, indices into `documents` and `labels` ([N] int64).
        """
        super().__init__((max_tokens,), torch.int64, classes)
        self._documents = documents
        self._labels = labels
        self._part = part
        self._width = max_tokens if fixed_length else None

    def __len__(self) -> int:
        return len(self._part)

    def take(
        self, positions: Sequence[int] | Tensor, augment: Augment | None = None, at: EpochPosition | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return a mini-batch: samples [N, T] int64, labels [N] int64. Documents have no augmentation."""
        assert augment is None, "the spec does not allow it"
        indices = self._part[torch.as_tensor(positions, dtype=torch.int64)]
        return self._documents.rows(indices, self._width), self._labels[indices]

    def mask(self, samples: Tensor) -> Tensor:
        # No word of a document has the number PADDING (see `numbers_of`).
        return samples != PADDING
