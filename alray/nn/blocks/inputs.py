"""What a block's input may be: said alike by every block, when it is built."""

from __future__ import annotations

from alray.errors import SpecError
from alray.nn.shape import Shape


def require_image(block: str, input: Shape) -> tuple[int, int, int]:
    """Channels, height and width of the input; a SpecError where it is no image."""
    if len(input) != 3:
        raise SpecError(
            f"block `{block}` takes images (channels, height, width), but its input is {tuple(input)}",
            mend="put it on image data, before any block that flattens",
        )
    channels, height, width = input
    return channels, height, width


def require_sequence(block: str, input: Shape) -> int:
    """Width of each place of the input, a sequence of vectors; a SpecError where it is none."""
    require_values(block, input)
    if len(input) != 2:
        raise SpecError(
            f"block `{block}` takes sequences of vectors (places, width), but its input is {tuple(input)}",
            mend="put it behind an `embedding` of text, or on data that are sequences",
        )
    return input[1]


def require_values(block: str, input: Shape) -> None:
    """A SpecError where the input holds word numbers (or other integers), with which nothing can be computed."""
    if not input.dtype.is_floating_point:
        raise SpecError(
            f"block `{block}` takes real values, but its input is word numbers or other integers",
            mend="put an `embedding` first",
        )
