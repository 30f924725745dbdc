"""Words and their numbers. The one file that uses torchtext: tokenizer `basic_english`, and the vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor
from torchtext.data.utils import get_tokenizer
from torchtext.vocab import Vocab

from alray.errors import DataError

#: From a document to its words, in order.
Tokenizer = Callable[[str], list[str]]

#: Number of the places behind a document's last word.
PADDING = 0
#: Number of every word that is not in the vocabulary.
UNKNOWN = 1
_SPECIALS = ("<pad>", "<unk>")


@cache
def make_tokenizer(name: str) -> Tokenizer:
    """`basic_english`, a tokenizer's .json file, or a name on the Hugging Face hub.

    Raises DataError where it is not there, or needs an extra that is not installed.
    """
    if name == "basic_english":
        return get_tokenizer("basic_english")  # type: ignore[no-any-return]  # torchtext has no types
    from alray.data.huggingface import hub_tokenizer

    return hub_tokenizer(name)


@dataclass(frozen=True)
class Vocabulary:
    """words: the word of each number; `<pad>` has 0 and `<unk>` 1, the others follow by falling frequency."""

    words: tuple[str, ...]
    tokenizer: str
    max_tokens: int

    def numbers(self, text: str) -> Tensor:
        """A document as the model's input: [T] int64, 1 <= T <= max_tokens. An empty one is one unknown word."""
        found = make_tokenizer(self.tokenizer)(text)[: self.max_tokens]
        return torch.tensor([self._places.get(word, UNKNOWN) for word in found] or [UNKNOWN], dtype=torch.int64)

    @cached_property
    def _places(self) -> dict[str, int]:
        return places_of(self.words)


def places_of(words: Sequence[str]) -> dict[str, int]:
    """The number of each word but `<pad>`: where a document holds that word it is unknown, as padding is no word."""
    return {word: number for number, word in enumerate(words) if number != PADDING}


def most_frequent(counts: Mapping[str, int], size: int) -> tuple[str, ...]:
    """`<pad>`, `<unk>` and the `size` - 2 most frequent words; of equally frequent ones the first by code points."""
    found = Vocab(Counter(counts), max_size=size - len(_SPECIALS), specials=list(_SPECIALS))
    if len(found) == len(_SPECIALS):
        raise DataError(
            "the training split has no words", key="data", mend="give documents that the tokenizer finds words in"
        )
    return tuple(found.itos)
