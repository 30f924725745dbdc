"""Tokens: how a text becomes numbers, and numbers become a text again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from alray.core.errors import DataError
from alray.data import progress
from alray.data.huggingface import load_tokenizer, require_hub

END = 0
"""The token after each document. It is no part of the text."""
UNKNOWN = "\ufffd"
"""The character that stands for any other one."""
_TYPES = (("B", numpy.uint8), ("H", numpy.uint16), ("i", numpy.int32))
"""Types of tokens with their codes in `array`, smallest first."""
_END_NAME = "<end of text>"


class Tokens(ABC):
    """A vocabulary of tokens. Token 0 is the end of a text."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The text of each token. That of a part of a character is made up."""

    def numbers(self, text: str) -> Tensor:
        """The tokens of a text, [tokens] int64, without an end."""
        return torch.from_numpy(self._of(text).astype(numpy.int64))

    @abstractmethod
    def _of(self, text: str) -> NDArray[Any]:
        """The tokens of a text, [tokens] of some integer type, without an end."""

    def prompt(self, text: str) -> Tensor:
        """The tokens of a text to be continued, [tokens] int64. An empty one is the end of the text before it."""
        return self.numbers(text) if text else torch.tensor([END])

    @abstractmethod
    def text(self, numbers: Sequence[int]) -> str:
        """The text of these tokens."""

    def stream(self, documents: Sequence[str], what: str = "tokens") -> Tensor:
        """The tokens of all documents in order, with an end after each: [tokens] of the smallest type that can hold
        them, uint8, uint16 or int32.

        Args:
            what: of them, for the user while it takes time.
        """
        code, kind = next(each for each in _TYPES if len(self.names) <= numpy.iinfo(each[1]).max + 1)
        found = array(code)
        size, done = sum(map(len, documents)), 0
        for document in documents:
            found.frombytes(self._of(document).astype(kind).tobytes())
            found.append(END)
            done += len(document)
            progress.tell(f"reading {what}", done, size)
        return torch.from_numpy(numpy.frombuffer(found, dtype=kind) if found else numpy.empty(0, dtype=kind))


class Bytes(Tokens):
    """The bytes of UTF-8. The end of a text is byte 0, which ordinary texts do not contain."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(chr(byte) if 32 <= byte < 127 else f"<{byte:02x}>" for byte in range(256))

    def _of(self, text: str) -> NDArray[Any]:
        return numpy.frombuffer(text.encode("utf-8", "replace"), dtype=numpy.uint8)

    def text(self, numbers: Sequence[int]) -> str:
        return bytes(numbers).decode("utf-8", "replace")


class Characters(Tokens):
    """The characters of a text, sorted, after the end of a text and U+FFFD for any other character."""

    def __init__(self, characters: Iterable[str]) -> None:
        known = sorted(set(characters) - {UNKNOWN, "\0"})
        self._characters = ("\0", UNKNOWN, *known)
        points = [*map(ord, self._characters)]
        self._numbers = numpy.full(max(points) + 2, self._characters.index(UNKNOWN), dtype=numpy.int32)
        self._numbers[points] = range(len(points))

    @property
    def names(self) -> tuple[str, ...]:
        return self._characters

    @property
    def known(self) -> tuple[str, ...]:
        """The characters without those that every text has."""
        return self._characters[2:]

    def _of(self, text: str) -> NDArray[Any]:
        points = numpy.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        # The last entry stands for all characters beyond.
        numbers: NDArray[Any] = self._numbers[numpy.minimum(points, len(self._numbers) - 1)]
        return numbers

    def text(self, numbers: Sequence[int]) -> str:
        return "".join(self._characters[number] for number in numbers)


class BytePairs(Tokens):
    """Byte pairs of a tokenizer of Hugging Face. Token n is its token n - 1, because 0 is the end of a text."""

    def __init__(self, tokenizer: Any) -> None:
        """
        Args:
            tokenizer: a `tokenizers.Tokenizer`.
        """
        self._tokenizer = tokenizer

    @classmethod
    def from_json(cls, text: str) -> BytePairs:
        """The tokens of which `as_json` gave this text.

        Raises DataError if Hugging Face's library is not installed, or if the text is no tokenizer.
        """
        library = require_hub("tokenizers")
        try:
            return cls(library.Tokenizer.from_str(text))
        except Exception as error:  # the library raises plain Exceptions
            raise DataError(f"this is no tokenizer: {error}", hint="export the run anew with `alray export`") from error

    def as_json(self) -> str:
        """The tokenizer, as its library writes it."""
        text: str = self._tokenizer.to_str()
        return text

    @cached_property
    def names(self) -> tuple[str, ...]:
        known = self._tokenizer.get_vocab()
        by_number = {number: token for token, number in known.items()}
        return (_END_NAME, *(by_number.get(number, f"<{number}>") for number in range(max(by_number) + 1)))

    def _of(self, text: str) -> NDArray[Any]:
        return numpy.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=numpy.int64) + 1

    def text(self, numbers: Sequence[int]) -> str:
        decoded: str = self._tokenizer.decode([number - 1 for number in numbers if number != END])
        return decoded


def make_tokens(
    kind: Literal["bytes", "characters", "bpe"], training: Sequence[str], tokenizer: str | None, vocabulary_size: int
) -> Tokens:
    """The tokens of a spec.

    Raises DataError if Hugging Face's library, which byte pairs need, is not installed, or a tokenizer is not there.

    Args:
        training: documents from which characters and byte pairs are learnt.
        tokenizer: byte pairs that are known, None: they are learnt.
        vocabulary_size: of byte pairs that are learnt, with the end of a text.
    """
    if kind == "bytes":
        return Bytes()
    if kind == "characters":
        return Characters(set().union(*map(set, training)))
    if tokenizer is not None:
        return BytePairs(load_tokenizer(tokenizer, key="data.tokenizer"))
    return BytePairs(_learnt(training, vocabulary_size - 1))


def _learnt(training: Sequence[str], vocabulary_size: int) -> Any:
    """A tokenizer of byte pairs, learnt from texts: the same texts give the same one."""
    library = require_hub("tokenizers")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    alphabet = sorted(library.pre_tokenizers.ByteLevel.alphabet())
    trainer = library.trainers.BpeTrainer(vocab_size=vocabulary_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(training, trainer)
    return tokenizer
