"""Tokenizers of the Hugging Face library `tokenizers` (extra `hub`), from a file or by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alray.data.hub_extra import require_hub
from alray.errors import DataError


def hub_tokenizer(name: str) -> Callable[[str], list[str]]:
    """The pieces of a text, without special ones. name: path of a .json file, or a name on the hub.

    Raises DataError where the extra is not installed, or the tokenizer is missing or damaged.
    """
    tokenizers = require_hub("tokenizers")
    if name.endswith(".json"):
        path = Path(name)
        if not path.is_file():
            raise DataError(
                "tokenizer not found",
                file=name,
                key="data.text.tokenizer",
                mend="give the path of a tokenizer's .json file, or `basic_english`",
            )
        make, given = tokenizers.Tokenizer.from_str, path.read_bytes().decode("utf-8", "replace")
        mend = "give the file that `Tokenizer.save` of the tokenizers library writes"
    else:
        make, given = tokenizers.Tokenizer.from_pretrained, name
        mend = "see that the name is right and the network is there; a .json file on disk needs none"
    try:
        tokenizer = make(given)
    except Exception as error:  # the library raises this very type
        reason = " ".join(str(error).split())
        raise DataError(
            f"no tokenizer can be made of `{name}`: {reason}", key="data.text.tokenizer", mend=mend
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def pieces(text: str) -> list[str]:
        return list(tokenizer.encode(text, add_special_tokens=False).tokens)

    return pieces
