"""Words and their numbers. This is the only file that uses torchtext: its tokenizer and its vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torchtext.data.utils import get_tokenizer
from torchtext.vocab import Vocab

from alray.config.sections.data import WordNumbering
from alray.core.errors import DataError
from alray.data.preparation import Preparation, prepared_text
from alray.models.token_embedding import PADDING

#: From a document to its words, in order.
Tokenizer = Callable[[str], list[str]]

#: The number of all words that are not in the vocabulary.
UNKNOWN = 1
SPECIALS = ("<pad>", "<unk>")
_NAMES_OF_PADDING = ("<pad>", "[pad]")
"""What tokenizers call their padding; their files do not always say which token it is."""


def make_tokenizer(name: str) -> Tokenizer:
    """Return a tokenizer. Each is made once, a file again if it changed.

    Args:
        name: `basic_english`, the path of a .json file, or a name on the Hugging Face hub.

    Raises:
        DataError: if the tokenizer does not exist, or if it needs an extra that is not installed.
    """
    return _tokenizer(name, _state_of(name))


@cache
def _tokenizer(name: str, state: object) -> Tokenizer:
    if name == "basic_english":
        return get_tokenizer("basic_english")  # type: ignore[no-any-return]  # torchtext has no types
    from alray.data.huggingface import hub_tokenizer

    return hub_tokenizer(name)


def own_numbers(tokenizer: str, max_tokens: int) -> TokenizerNumbers:
    """The numbers that a tokenizer of Hugging Face gives to its tokens. It is read once, a file again if it changed.

    Raises DataError if the tokenizer does not exist, needs an extra that is not installed, or if its token 0 is not for
    padding, as it is here.
    """
    return _own_numbers(tokenizer, max_tokens, _state_of(tokenizer))


@cache
def _own_numbers(tokenizer: str, max_tokens: int, state: object) -> TokenizerNumbers:
    from alray.data.huggingface import load_tokenizer

    return TokenizerNumbers(load_tokenizer(tokenizer, key="data.text.tokenizer"), max_tokens)


def _state_of(tokenizer: str) -> object:
    """What is another value once a tokenizer's file has changed; None if it is no file."""
    path = Path(tokenizer)
    if path.suffix != ".json" or not path.is_file():
        return None
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


class TokenizerNumbers:
    """Documents as a model of Hugging Face reads them: the numbers of its tokenizer, with its special tokens."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        """
        Args:
            tokenizer: a `tokenizers.Tokenizer`. It cuts off what is more than `max_tokens`, and keeps special tokens.
        """
        by_number = {number: token for token, number in tokenizer.get_vocab().items()}
        self.words = tuple(by_number.get(number, f"<{number}>") for number in range(max(by_number) + 1))
        special = {number: token for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        padding = {token.content for token in special.values() if token.content.lower() in _NAMES_OF_PADDING}
        wrong = None
        if padding and self.words[PADDING] not in padding:
            wrong = f"the tokenizer pads with `{padding.pop()}`"
        elif PADDING not in special or PADDING in tokenizer.encode("a").ids:
            wrong = "which documents contain"
        if wrong is not None:
            raise DataError(
                f"token {PADDING} of the tokenizer is `{self.words[PADDING]}`, {wrong}; alray pads documents with "
                f"{PADDING}",
                key="data.text.numbering",
                hint="use a tokenizer whose first token is for padding, as those of BERT, or numbering: frequency",
            )
        tokenizer.enable_truncation(max_tokens)
        self._tokenizer = tokenizer

    def of(self, text: str) -> list[int]:
        """The numbers of a document, at least one: a document without tokens becomes token 1."""
        numbers: list[int] = self._tokenizer.encode(text).ids
        return numbers or [UNKNOWN]


@dataclass(frozen=True)
class Vocabulary:
    """The words of a run and their numbers.

    Attributes:
        words: the word of each number. `<pad>` has number 0 and `<unk>` 1; the others follow, the most frequent first.
        tokenizer: see `make_tokenizer`.
        max_tokens: number of words of a document that are read.
        prepare: see `alray.data.preparation`.
        numbering: see `alray.config.sections.data.Text`. With `tokenizer`, `words` are all tokens of the tokenizer.
    """

    words: tuple[str, ...]
    tokenizer: str
    max_tokens: int
    prepare: Preparation = "none"
    numbering: WordNumbering = "frequency"

    def numbers(self, text: str, *, padded: bool = False) -> Tensor:
        """Return a document as input of the model: [T] int64, 1 <= T <= max_tokens.

        An empty document becomes one unknown word.

        Args:
            padded: T = max_tokens.
        """
        prepared = prepared_text(text, self.prepare)
        if self.numbering == "tokenizer":
            numbers = own_numbers(self.tokenizer, self.max_tokens).of(prepared)
        else:
            found = make_tokenizer(self.tokenizer)(prepared)[: self.max_tokens]
            numbers = [self._numbers.get(word, UNKNOWN) for word in found] or [UNKNOWN]
        if padded:
            numbers += [PADDING] * (self.max_tokens - len(numbers))
        return torch.tensor(numbers, dtype=torch.int64)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return numbers_of(self.words)


def numbers_of(words: Sequence[str]) -> dict[str, int]:
    """Return the number of each word except `<pad>`: if a document contains that word, it is an unknown word."""
    return {word: number for number, word in enumerate(words) if number != PADDING}


def most_frequent(counts: Mapping[str, int], size: int) -> tuple[str, ...]:
    """Return `<pad>`, `<unk>` and the `size` - 2 most frequent words. Equally frequent words are sorted by code point.

    Raises DataError if `counts` is empty.
    """
    found = Vocab(Counter(counts), max_size=size - len(SPECIALS), specials=list(SPECIALS))
    if len(found) == len(SPECIALS):
        raise DataError(
            "the training split has no words", key="data", hint="use documents in which the tokenizer finds words"
        )
    return tuple(found.itos)
