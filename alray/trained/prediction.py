"""What a route says of one input, and how inputs that are documents are given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from alray.data.text_file import read_text

_FILE_NAME = re.compile(r"\S+\.txt", re.IGNORECASE)
"""One word with the ending of a text file. The name of a file that is not there must not pass for a document."""


@dataclass(frozen=True)
class ClassPrediction:
    """What a route says of one input. `score` is the share the softmax of the class scores gives the label."""

    input: str
    label: str
    class_index: int
    score: float
    depth: int


def prediction_of(given: str, scores: torch.Tensor, classes: Sequence[str], depth: int) -> ClassPrediction:
    """What these class scores `[classes]` of the input `given` say."""
    shares = torch.softmax(scores.double(), 0)
    best = int(scores.argmax())
    return ClassPrediction(given, classes[best], best, float(shares[best]), depth)


def document(given: str) -> str:
    """The document an input stands for: what the file of that name holds, or else the input itself.

    Raises DataError where a file of that name is not text, and where what can only be the name of a file is none.
    """
    if _is_file(given) or _FILE_NAME.fullmatch(given):
        return read_text(Path(given))
    return given


def _is_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # longer than a path may be, or with a character no path has
        return False
