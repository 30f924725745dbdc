"""Where a key of a spec was written, found again for a problem that came up after the spec was read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from alray.errors import SpecError
from alray.spec.overrides import apply_overrides
from alray.spec.yaml_text import read_yaml


def place_of(key: str, spec: Path, overrides: Sequence[str]) -> tuple[str, int | None]:
    """The file (or `command line`) and the line of `key`, or of the nearest section around it.

    key: as messages print it, such as `model.components[2].channels`. The line is None where it cannot be told.
    """
    try:
        document, places = read_yaml(spec.read_text(encoding="utf-8-sig"), str(spec))
    except (OSError, UnicodeDecodeError, SpecError):
        return str(spec), None  # it was readable a moment ago; the problem at hand matters more
    apply_overrides(document, overrides, places)
    place = places.of(tuple(int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", key)))
    return place.file, place.line
