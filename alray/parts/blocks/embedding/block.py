"""The embedding block: a vector for each word."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from alray.core.errors import SpecError
from alray.models.shape import Shape
from alray.models.token_embedding import PADDING, TokenEmbedding
from alray.parts.blocks.embedding.word_vectors import check_vectors, read_vectors

SPREAD = 0.1
"""Standard deviation of the random initial vectors: of all words, or of those that are not in the file."""


def build(input: Shape, *, dim: int, vectors: Path | None = None) -> nn.Module:
    """`[N, T]` word numbers `-> [N, T, dim]`; `vectors` is a file of initial word vectors.

    Raises SpecError if the input is not word numbers or tokens, DataError if the file is missing, damaged or of another
    width.
    """
    numbers = input.tokens or input.numbers
    if numbers is not None and vectors is None:
        return TokenEmbedding(numbers, dim=dim)
    if input.words is None:
        raise SpecError(
            f"block `embedding` takes text (word numbers with their vocabulary), but its input is {tuple(input)}",
            hint="put it first, on text data",
        )
    return WordEmbedding(input.words, dim=dim, vectors=vectors)


class WordEmbedding(nn.Module):
    """A trained matrix whose row i is the vector of `words[i]`. Row 0, for padding, stays zero.

    Word i starts with its vector from the file, whatever the order of the file. A word that is not in the file
    starts with a small normal vector of mean zero, which does not depend on the file.
    """

    def __init__(self, words: tuple[str, ...], *, dim: int, vectors: Path | None) -> None:
        super().__init__()
        self.table = nn.Embedding(len(words), dim, padding_idx=PADDING)
        if (
            self.table.weight.is_meta
        ):  # only shapes are needed, and the file may be a gigabyte: its first line is enough
            if vectors is not None:
                check_vectors(vectors, dim=dim)
            return
        with torch.no_grad():
            self.table.weight.normal_(0.0, SPREAD)
            if vectors is not None:
                numbers, values = read_vectors(vectors, words=words[PADDING + 1 :], dim=dim)
                self.table.weight[numbers + PADDING + 1] = values
            self.table.weight[PADDING] = 0.0

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """The mask is not needed.

        Args:
            s: [N, T] int64, 0 at padded positions, which give zeros.
        """
        result: torch.Tensor = self.table(s)
        return result
