"""How a part of a model is named."""

from __future__ import annotations

from typing import NamedTuple


class PartEnds(NamedTuple):
    """A part of a model from one cut point to another, by their names. None: from its input, to its result."""

    after: str | None
    until: str | None
