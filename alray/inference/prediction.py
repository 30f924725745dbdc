"""The prediction of a route for one input, and reading inputs that are documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from alray.data.text_file import read_text

_FILE_NAME = re.compile(r"\S+\.txt", re.IGNORECASE)
"""One word that ends in .txt. The name of a missing file must not be classified as if it were a document."""


@dataclass(frozen=True)
class ClassPrediction:
    """The prediction for one input. `score` is the softmax of the class scores at the label, in 0..1."""

    input: str
    label: str
    class_index: int
    score: float
    depth: int


def prediction_of(given: str, scores: torch.Tensor, classes: Sequence[str], depth: int) -> ClassPrediction:
    """The prediction from the class scores `[classes]` of the input `given`."""
    shares = torch.softmax(scores.double(), 0)
    best = int(scores.argmax())
    return ClassPrediction(given, classes[best], best, float(shares[best]), depth)


def document(given: str) -> str:
    """The document of an input: the content of the file with that name, or else the input itself.

    Raises DataError if the file is not text, or if the input can only be the name of a file and there is none.
    """
    if _is_file(given) or _FILE_NAME.fullmatch(given):
        return read_text(Path(given))
    return given


def _is_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # too long for a path, or with a character that no path has
        return False
