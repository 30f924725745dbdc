"""The embedding block: a vector for each word."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from alray.errors import SpecError
from alray.nn.blocks.registry import register
from alray.nn.blocks.word_vectors import check_vectors, read_vectors
from alray.nn.shape import Shape

PADDING = 0
"""Number of the word that is none."""
SPREAD = 0.1
"""Standard deviation of the vectors that are drawn: of every word's without a file, else of those not in it."""


@register("embedding")
def build(input: Shape, *, dim: int, vectors: Path | None = None) -> nn.Module:
    """`[N, T]` word numbers `-> [N, T, dim]`; `vectors` is a file of word vectors to begin with.

    A SpecError where the input is not word numbers; a DataError where the file is missing, damaged or of another width.
    """
    if input.words is None:
        raise SpecError(
            f"block `embedding` takes text (word numbers with their vocabulary), but its input is {tuple(input)}",
            mend="put it first, on text data",
        )
    return Embedding(input.words, dim=dim, vectors=vectors)


class Embedding(nn.Module):
    """Row i of the matrix is the vector of `words[i]`, and is learned; row 0, padding, is zero and stays so.

    The matrix is built word by word: word i gets its own vector from the file, whatever the file's order. Words the
    file does not have begin with a small normal vector of mean zero, which does not depend on the file.
    """

    def __init__(self, words: tuple[str, ...], *, dim: int, vectors: Path | None) -> None:
        super().__init__()
        self.table = nn.Embedding(len(words), dim, padding_idx=PADDING)
        if self.table.weight.is_meta:  # shapes only: a glance at the file is enough, it may be a gigabyte
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
        """s: [N, T] int64, 0 at padded places, which give zeros; the mask says nothing more."""
        result: torch.Tensor = self.table(s)
        return result
