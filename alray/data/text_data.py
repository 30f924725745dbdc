"""Documents with classes: from the sets of a source to splits of word numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from alray.config.sections.data import DataSection, Text, TextSection
from alray.config.sections.own_code import OwnCode
from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.cache import cached
from alray.data.class_weights import class_weights
from alray.data.dataset import Dataset
from alray.data.division import Parts, divide, never_trained
from alray.data.documents import Documents, KnownNumbering, Numbering
from alray.data.hashes import hash_of_set
from alray.data.inputs import TextInputs
from alray.data.preparation import prepared_sets
from alray.data.source import SplitName, TextSet, TextSource
from alray.data.split import Augment, EpochPosition, Split
from alray.data.vocabulary import Vocabulary, make_tokenizer, own_numbers
from alray.models.shape import Shape
from alray.models.task import make_task
from alray.models.token_embedding import PADDING


def text_data(
    source: TextSource,
    sets: Mapping[SplitName, TextSet | None],
    section: DataSection,
    seed: int,
    task_section: TaskSection,
    load: Callable[[str], Any],
    *,
    fixed_length: bool,
) -> Dataset:
    """The data of a source of documents. Raises DataError, as `open_data`.

    Args:
        sets: of the source; its training set is there.
    """
    given = sets["train"]
    assert given is not None
    text = cast("TextSection", section).text  # a user's source has it too
    task = make_task(task_section, len(source.classes), load=load)
    train, test = prepared_sets(given, sets.get("test"), text.prepare)
    labels = torch.tensor(train.labels, dtype=torch.int64)
    parts = divide(len(train), section, seed, labels)
    train_split, validation_split, test_split, vocabulary = text_splits(
        train, test, parts, classes=source.classes, text=text, fixed_length=fixed_length
    )
    return Dataset(
        section=section,
        task=task,
        train=train_split,
        validation=validation_split,
        test=test_split,
        inputs=TextInputs(vocabulary, fixed_length),
        num_samples=len(given),  # of the source: preparation may leave some out
        labels=labels[parts.train],
        chance=task.chance(labels[parts.train]),
        class_weights=class_weights(task_section.weights_of_classes, source.classes, labels[parts.train]),
        contents=source.contents if isinstance(section, OwnCode) else hash_of_set(train),
        notes=(*source.notes, *never_trained(labels, parts.train, source.classes)),
    )


def text_splits(
    train: TextSet, test: TextSet | None, parts: Parts, *, classes: tuple[str, ...], text: Text, fixed_length: bool
) -> tuple[TextSplit, TextSplit | None, TextSplit | None, Vocabulary]:
    """Return the training, validation and test split, and the vocabulary.

    The vocabulary has words of the training split only; other words of the validation and the test split become the
    unknown word.

    Args:
        train, test: documents that are prepared as `text.prepare` says.
        parts: of `train`.
    """

    def read_all() -> tuple[Numbering | KnownNumbering, Documents, Documents | None]:
        numbering: Numbering | KnownNumbering
        if text.numbering == "tokenizer":
            numbering = KnownNumbering(own_numbers(text.tokenizer, text.max_tokens))
        else:
            numbering = Numbering(make_tokenizer(text.tokenizer))
        return numbering, numbering.read(train.texts), numbering.read(test.texts) if test is not None else None

    cut = text.max_tokens if text.numbering == "tokenizer" else None  # a tokenizer keeps special tokens as it cuts
    numbering, read, read_test = cached("documents", (train, test, text.tokenizer, cut), read_all)
    words, table = numbering.vocabulary(read, parts.train, text.vocabulary_size)
    vocabulary = Vocabulary(words, text.tokenizer, text.max_tokens, text.prepare, text.numbering)

    def split(documents: Documents, labels: Tensor, part: Tensor) -> TextSplit:
        return TextSplit(documents, labels, part, vocabulary, classes=classes, fixed_length=fixed_length)

    documents, labels = read.renumbered(table, text.max_tokens), _labels(train, "train", classes)
    test_split = None
    if test is not None and read_test is not None:
        test_documents, test_labels = read_test.renumbered(table, text.max_tokens), _labels(test, "test", classes)
        test_split = split(test_documents, test_labels, torch.arange(len(test)))
    validation = split(documents, labels, parts.validation) if len(parts.validation) else None
    return split(documents, labels, parts.train), validation, test_split, vocabulary


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
        vocabulary: Vocabulary,
        *,
        classes: tuple[str, ...],
        fixed_length: bool,
    ) -> None:
        """
        Args:
            part: [len(self)] int64, indices into `documents` and `labels` ([N] int64).
        """
        super().__init__(Shape((vocabulary.max_tokens,), torch.int64, words=vocabulary.words), classes)
        self._documents = documents
        self._labels = labels
        self._part = part
        self._width = vocabulary.max_tokens if fixed_length else None

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
