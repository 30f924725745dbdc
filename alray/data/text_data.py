"""From documents to splits: tokenised once, with a vocabulary of the training split's words alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alray.data.documents import Numbering
from alray.data.text_source import TextSet
from alray.data.text_split import TextSplit
from alray.data.vocabulary import Vocabulary, make_tokenizer
from alray.errors import DataError

if TYPE_CHECKING:
    from alray.spec import data as spec


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
    """Training, validation and test split, and the vocabulary.

    train_part, validation_part: indices into `train`, [n] int64. Words that only validation and test have are unknown.
    """
    numbering = Numbering(make_tokenizer(text.tokenizer))
    read = numbering.read(train.texts)
    read_test = numbering.read(test.texts) if test is not None else None
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
    vocabulary = Vocabulary(words, text.tokenizer, text.max_tokens)
    return split(train_part), split(validation_part) if len(validation_part) else None, test_split, vocabulary


def _labels(documents: TextSet, name: str, classes: tuple[str, ...]) -> Tensor:
    labels = torch.tensor(documents.labels, dtype=torch.int64)
    wrong = (labels < 0) | (labels >= len(classes))
    if wrong.any():
        place = int(wrong.nonzero()[0])
        raise DataError(
            f"document {place} of split `{name}` has label {int(labels[place])}, and there are {len(classes)} classes",
            key="data",
            mend=f"labels go from 0 to {len(classes) - 1}",
        )
    return labels
