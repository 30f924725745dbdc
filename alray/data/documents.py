"""Documents as word numbers: one flat tensor, and the position at which each document starts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from alray.data.vocabulary import UNKNOWN, Tokenizer, TokenizerNumbers, most_frequent, numbers_of
from alray.models.token_embedding import PADDING


@dataclass(frozen=True)
class Documents:
    """N documents. None of them is empty.

    Attributes:
        numbers: [words of all documents] int32.
        offsets: [N + 1] int64; document i is numbers[offsets[i] : offsets[i + 1]].
    """

    numbers: Tensor
    offsets: Tensor

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """Number of words of each document, [N] int64."""
        return self.offsets.diff()

    def rows(self, indices: Tensor, width: int | None = None) -> Tensor:
        """Return documents as rows of a tensor [n, T] int64, with PADDING after the last word of each one.

        Args:
            indices: [n] int64. T is the length of the longest of these documents, or `width`, which no document
                exceeds.
        """
        starts = self.offsets[indices]
        lengths = self.offsets[indices + 1] - starts
        positions = torch.arange(int(lengths.max()) if width is None else width)
        within = (starts.unsqueeze(1) + positions).clamp_(max=len(self.numbers) - 1)
        return self.numbers[within].to(torch.int64).masked_fill_(positions >= lengths.unsqueeze(1), PADDING)

    def renumbered(self, table: Tensor, max_tokens: int) -> Documents:
        """Return the first `max_tokens` words of each document, with every number n replaced by `table[n]` (int32)."""
        lengths = self.lengths
        starts = self.offsets[:-1].repeat_interleave(lengths)
        within = torch.arange(len(self.numbers)).sub_(starts) < max_tokens
        return Documents(table[self.numbers[within]], _offsets(lengths.clamp(max=max_tokens)))

    def counts(self, part: Tensor, num_words: int) -> Tensor:
        """Return how often each number occurs in the documents `part` ([n] int64): [num_words] int64."""
        chosen = torch.zeros(len(self), dtype=torch.bool)
        chosen[part] = True
        return torch.bincount(self.numbers[chosen.repeat_interleave(self.lengths)], minlength=num_words)


class Numbering:
    """Numbers words in the order in which they occur, until the vocabulary is known. 0 is the unknown word."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._numbers: dict[str, int] = {"<unk>": 0}

    def read(self, texts: Iterable[str]) -> Documents:
        """Tokenise the texts. A document without words becomes one unknown word."""
        known = self._numbers
        return _read(
            [known.setdefault(word, len(known)) for word in self._tokenizer(text) or ["<unk>"]] for text in texts
        )

    def vocabulary(self, documents: Documents, part: Tensor, size: int) -> tuple[tuple[str, ...], Tensor]:
        """Return the vocabulary of `documents[part]`, and a table from these numbers to those of the vocabulary.

        Args:
            part: [n] int64.
            size: largest number of words. The table is int32.
        """
        counted = documents.counts(part, len(self._numbers)).tolist()
        words = most_frequent({word: count for word, count in zip(self._numbers, counted, strict=True) if count}, size)
        vocabulary = numbers_of(words)
        table = [vocabulary.get(word, UNKNOWN) for word in self._numbers]
        return words, torch.tensor(table, dtype=torch.int32)


class KnownNumbering:
    """The numbers of a tokenizer of Hugging Face, which no document changes. Its methods are those of `Numbering`."""

    def __init__(self, numbers: TokenizerNumbers) -> None:
        self._numbers = numbers

    def read(self, texts: Iterable[str]) -> Documents:
        return _read(map(self._numbers.of, texts))

    def vocabulary(self, documents: Documents, part: Tensor, size: int) -> tuple[tuple[str, ...], Tensor]:
        words = self._numbers.words
        return words, torch.arange(len(words), dtype=torch.int32)


def _read(documents: Iterable[list[int]]) -> Documents:
    numbers, lengths = array("i"), array("q")
    for each in documents:
        numbers.extend(each)
        lengths.append(len(each))
    flat = torch.from_numpy(numpy.array(numbers, dtype=numpy.int32))
    return Documents(flat, _offsets(torch.from_numpy(numpy.array(lengths, dtype=numpy.int64))))


def _offsets(lengths: Tensor) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
