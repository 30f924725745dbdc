"""From what a user gives to predict to inputs of the model."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from alray.core.errors import DataError
from alray.data.text_file import equal_line_ends, read_text

if TYPE_CHECKING:  # torchtext and the library of tokenizers take time, and pictures do without them
    from alray.data.tokens import Tokens
    from alray.data.vocabulary import Vocabulary


class Inputs(ABC):
    """How what a user gives becomes inputs of the model."""

    @abstractmethod
    def read(self, given: str) -> Iterator[tuple[str, Tensor]]:
        """The inputs in what is given, without the batch dimension, each with a name.

        Raises DataError if it is not what the model takes.
        """


@dataclass(frozen=True)
class FileInputs(Inputs):
    """The samples of a picture file or of a table, float32, prepared without the data of the training.

    Attributes:
        samples: reads those of a file, each with a name; None: nobody knows how a file becomes a sample.
        shape: of an input, whose channels a grey picture may be expanded to.
        prepare: from a batch of such samples, [N, ...], to that of a split.
    """

    samples: Callable[[Path], Iterator[tuple[str, Tensor]]] | None
    shape: tuple[int, ...]
    prepare: Callable[[Tensor], Tensor]

    def read(self, given: str) -> Iterator[tuple[str, Tensor]]:
        if self.samples is None:
            raise DataError(
                "nothing says how a file becomes a sample of this network",
                file=given,
                hint="predict in Python: run.network() is a torch module that takes samples",
            )
        for name, raw in self.samples(Path(given)):
            if raw.shape != self.shape and not (raw.ndim == 3 and raw.shape == (1, *self.shape[1:])):
                raise DataError(
                    f"sample {name} has shape {list(raw.shape)}, but those of the training have {list(self.shape)}",
                    key="data",
                    hint="give all samples the same shape",
                )
            yield name, self.prepare(raw.unsqueeze(0))[0]


@dataclass(frozen=True)
class TextInputs(Inputs):
    """A document as word numbers, [T] int64.

    Attributes:
        padded: whether every document has the largest width.
    """

    vocabulary: Vocabulary
    padded: bool

    def read(self, given: str) -> Iterator[tuple[str, Tensor]]:
        yield given, self.vocabulary.numbers(document(given), padded=self.padded)


@dataclass(frozen=True)
class TokenInputs(Inputs):
    """The last tokens of a text to continue, at most `context` of them, [T] int64."""

    tokens: Tokens
    context: int

    def read(self, given: str) -> Iterator[tuple[str, Tensor]]:
        yield given, self.tokens.prompt(document(given))[-self.context :]


_FILE_NAME = re.compile(r"\S+\.txt", re.IGNORECASE)
"""One word that ends in .txt. The name of a missing file must not be classified as if it were a document."""


def document(given: str) -> str:
    """The document of an input: the content of the file with that name, or else the input itself.

    Raises DataError if the file is not text, or if the input can only be the name of a file and there is none.
    """
    if _is_file(given) or _FILE_NAME.fullmatch(given):
        return read_text(Path(given))
    return equal_line_ends(given)


def _is_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # too long for a path, or with a character that no path has
        return False
