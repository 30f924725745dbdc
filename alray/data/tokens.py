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

from alray.config.sections.data import LEARNT_BYTE_PAIRS
from alray.core.errors import DataError
from alray.data import progress
from alray.data.huggingface import load_tokenizer, require_hub

END = 0
"""The token after each document, where a tokenizer has none of its own. It is no part of the text."""
UNKNOWN = "\ufffd"
"""The character that stands for any other one."""
_TYPES = (("B", numpy.uint8), ("H", numpy.uint16), ("i", numpy.int32))
"""Types of tokens with their codes in `array`, smallest first."""
_END_NAME = "<end of text>"


class Tokens(ABC):
    """A vocabulary of tokens.

    Attributes:
        end: the token after each document.
    """

    end = END

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
        return self.numbers(text) if text else torch.tensor([self.end])

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
            found.append(self.end)
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
    """Byte pairs of a tokenizer of Hugging Face.

    If it has an end of a text, tokens have its numbers. Otherwise token 0 is the end of a text, and token n is its
    token n - 1.
    """

    def __init__(self, tokenizer: Any, end_token: str | None = None, size: int | None = None) -> None:
        """
        Args:
            tokenizer: a `tokenizers.Tokenizer`.
            end_token: of the tokenizer, after each document.
            size: the number of tokens, None: as many as the tokenizer has. Some models have more.

        Raises DataError if the tokenizer has no such token, or more than `size` tokens.
        """
        self._tokenizer = tokenizer
        self.end_token = end_token
        self.size = size
        self._shift = 1 if end_token is None else 0
        if end_token is not None:
            self.end = _number(tokenizer, end_token)
        known = max(tokenizer.get_vocab().values()) + 1
        if size is not None and size < known:
            raise DataError(
                f"the tokenizer has {known:,} tokens",
                key="data.vocabulary_size",
                hint="leave it out, or give the number of tokens of the model, which may have more",
            )

    @classmethod
    def from_json(cls, text: str, end_token: str | None = None, size: int | None = None) -> BytePairs:
        """The tokens of which `as_json` gave this text.

        Raises DataError if Hugging Face's library is not installed, or if the text is no tokenizer.
        """
        library = require_hub("tokenizers")
        try:
            tokenizer = library.Tokenizer.from_str(text)
        except Exception as error:  # the library raises plain Exceptions
            raise DataError(f"this is no tokenizer: {error}", hint="export the run anew with `alray export`") from error
        return cls(tokenizer, end_token, size)

    def as_json(self) -> str:
        """The tokenizer, as its library writes it."""
        text: str = self._tokenizer.to_str()
        return text

    @cached_property
    def names(self) -> tuple[str, ...]:
        by_number = {number: token for token, number in self._tokenizer.get_vocab().items()}
        names = tuple(by_number.get(number, f"<{number}>") for number in range(self.size or max(by_number) + 1))
        return names if self.end_token is not None else (_END_NAME, *names)

    def _of(self, text: str) -> NDArray[Any]:
        return numpy.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=numpy.int64) + self._shift

    def text(self, numbers: Sequence[int]) -> str:
        decoded: str = self._tokenizer.decode([number - self._shift for number in numbers if number != self.end])
        return decoded


def _number(tokenizer: Any, token: str) -> int:
    number: int | None = tokenizer.token_to_id(token)
    if number is None:
        special = sorted(each.content for each in tokenizer.get_added_tokens_decoder().values() if each.special)
        raise DataError(
            f"the tokenizer has no token `{token}`",
            key="data.end_token",
            hint=f"its special tokens are {', '.join(special)}" if special else "it has no special token",
        )
    return number


def make_tokens(
    kind: Literal["bytes", "characters", "bpe"],
    training: Sequence[str],
    *,
    tokenizer: str | None = None,
    end_token: str | None = None,
    vocabulary_size: int | None = None,
) -> Tokens:
    """The tokens of a spec.

    Raises DataError if Hugging Face's library, which byte pairs need, is not installed, or a tokenizer is not there.

    Args:
        training: documents from which characters and byte pairs are learnt.
        tokenizer: byte pairs that are known, None: they are learnt.
        end_token: of that tokenizer, see `BytePairs`.
        vocabulary_size: of byte pairs, with the end of a text.
    """
    if kind == "bytes":
        return Bytes()
    if kind == "characters":
        return Characters(set().union(*map(set, training)))
    if tokenizer is not None:
        return BytePairs(load_tokenizer(tokenizer, key="data.tokenizer"), end_token, vocabulary_size)
    return BytePairs(_learnt(training, (vocabulary_size or LEARNT_BYTE_PAIRS) - 1))


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
