"""Inputs of predictions that are documents."""

from __future__ import annotations

import re
from pathlib import Path

from alray.data.text_file import equal_line_ends, read_text

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
