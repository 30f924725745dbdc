"""The embedding block: a vector for each word, and the files of word vectors that it may begin with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path

import torch
from torch import nn

from alray.core.errors import DataError, SpecError
from alray.data.text_file import require_text
from alray.models.shape import Shape
from alray.models.token_embedding import PADDING, TokenEmbedding

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


# --- Files of word vectors in text form (GloVe, word2vec, fastText): `word v1 ... vd` a line ---
#
# An optional first line of two whole numbers gives the number of vectors and their width. A single space separates
# fields.


def read_vectors(path: Path, *, words: Sequence[str], dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The vectors of the `words` that are in the file: their indices in `words` [M], and values [M, dim] float32.

    The whole file is read line by line, and the number of values of every line is checked; only the wanted vectors are
    kept. If a word is in the file twice, the first line counts. Raises DataError, with the line, if a line does not
    have `dim` values, if a value is not a finite number, or if the first line announces another number of lines.
    """
    wanted = {word.encode(): index for index, word in enumerate(words)}
    indices: list[int] = []
    rows = [torch.empty(0, dim, device="cpu")]
    for line, word, values in _lines(path, dim):
        index = wanted.pop(word, None)
        if index is not None:
            indices.append(index)
            rows.append(_vector(path, line, values).unsqueeze(0))
    return torch.tensor(indices, dtype=torch.int64, device="cpu"), torch.cat(rows)


def check_vectors(path: Path, *, dim: int) -> None:
    """Raises DataError if the file is missing, or if its first vector is not one of `dim` numbers."""
    for line, _, values in _lines(path, dim):
        _vector(path, line, values)
        return


def _lines(path: Path, dim: int) -> Iterator[tuple[int, bytes, bytes]]:
    """For each line with a vector: its number from 1, its word, and the text of its `dim` values."""
    announced: int | None = None
    found = line = 0
    try:
        with path.open("rb") as file:
            for line, text in enumerate(file, start=1):
                if line == 1:
                    require_text(text, path)
                word, _, values = text.rstrip(b" \r\n").partition(b" ")
                # Only wanted lines are split into their values: counting spaces takes a tenth of the time.
                width = values.count(b" ") + 1 if values else 0
                if line == 1 and width == 1 and word.isdigit() and values.isdigit():
                    announced, width = int(word), int(values)
                if width != dim:
                    raise _wrong_width(path, line, width, dim, found)
                if line == 1 and announced is not None:
                    continue
                found += 1
                yield line, word, values
    except OSError as error:
        raise DataError(
            f"cannot read the word vectors: {error.strerror or error}",
            file=str(path),
            hint="give a file of lines `word v1 ... vd`, such as one of GloVe's, unpacked; or leave `vectors` out",
        ) from error
    if announced is not None and found != announced:
        raise DataError(
            f"the first line says that there are {announced} vectors, but there are {found}",
            file=str(path),
            line=line,
            hint="the file is cut short or was changed: get it anew",
        )
    if found == 0:
        raise DataError("there are no word vectors in this file", file=str(path), hint="get it anew")


def _wrong_width(path: Path, line: int, width: int, dim: int, found: int) -> DataError:
    if found > 0:
        hint = "the lines before it have as many as dim says: the file is damaged, get it anew"
    else:
        hint = f"set dim to {width}, or give a file with vectors of {dim}" if width > 1 else "unpack the file first"
    return DataError(f"{width} values, but dim is {dim}", file=str(path), line=line, hint=hint)


def _vector(path: Path, line: int, values: bytes) -> torch.Tensor:
    """The values of a line, [dim] float32."""
    texts = values.split(b" ")
    # On the CPU, even when the network is built on the meta device: these values are read.
    vector = torch.tensor([_number(text) for text in texts], dtype=torch.float32, device="cpu")
    for text, is_finite in zip(texts, vector.isfinite().tolist(), strict=True):
        if not is_finite:
            shown = text.decode(errors="replace")
            raise DataError(
                f"`{shown if len(shown) <= 40 else shown[:37] + '...'}` is no finite number",
                file=str(path),
                line=line,
                hint="the file is damaged, or not one of word vectors: get it anew",
            )
    return vector


def _number(text: bytes) -> float:
    """The text as a number; nan if it is not one."""
    if b"_" in text:  # Python reads 1_000 as a number; these files do not
        return nan
    try:
        return float(text)
    except ValueError:
        return nan
