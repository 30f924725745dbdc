"""Functions for the inputs of blocks: checks of the shape, and padding."""

from __future__ import annotations

import torch

from alray.core.errors import SpecError
from alray.models.shape import Shape


def require_image(block: str, input: Shape) -> tuple[int, int, int]:
    """Channels, height and width of the input. Raises SpecError if it is not an image."""
    if len(input) != 3:
        raise SpecError(
            f"block `{block}` takes images (channels, height, width), but its input is {tuple(input)}",
            hint="put it on image data, before any block that flattens",
        )
    channels, height, width = input
    return channels, height, width


def require_sequence(block: str, input: Shape) -> int:
    """Width of the vectors of the input. Raises SpecError if it is not a sequence of vectors."""
    require_values(block, input)
    if len(input) != 2:
        raise SpecError(
            f"block `{block}` takes sequences of vectors (positions, width), but its input is {tuple(input)}",
            hint="put it after an `embedding` of text, or on data that are sequences",
        )
    return input[1]


def require_values(block: str, input: Shape) -> None:
    """Raises SpecError if the input holds word numbers or other integers, with which a block cannot compute."""
    if not input.dtype.is_floating_point:
        raise SpecError(
            f"block `{block}` takes real values, but its input is word numbers or other integers",
            hint="put an `embedding` first",
        )


def zero_padding(s: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`[N, T, D]` with zeros where `mask` `[N, T]` is False; s itself without a mask.

    A block that adds a bias gives other values than 0 at padded positions. They are set back to 0, so that no later
    block can see how far a row was padded.
    """
    return s if mask is None else s.masked_fill(~mask.unsqueeze(2), 0.0)
