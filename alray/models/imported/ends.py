"""How a part of a model is named."""

from __future__ import annotations

from typing import NamedTuple


class PartEnds(NamedTuple):
    """A part of a model from one cut point to another, by their names. None: from its input, to its result.

    Attributes:
        takes: shapes of one sample of the tensors that its input packs, () where it is one tensor as the model has it.
    """

    after: str | None
    until: str | None
    takes: tuple[tuple[int, ...], ...] = ()
