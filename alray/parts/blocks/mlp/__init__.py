"""`block: mlp`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.blocks import BlockSection, Dropout, LayerActivation
from alray.config.sections.section import Width


class Mlp(BlockSection):
    """Several linear layers. Images are flattened. In a sequence, they are applied to each position."""

    implementation = "block:build"

    block: Literal["mlp"]
    """`mlp`."""
    widths: Annotated[tuple[Width, ...], Field(strict=False, min_length=1)]
    """Output width of each layer, in order."""
    activation: LayerActivation = "relu"
    """Activation after every layer. Default: relu."""
    dropout: Dropout = 0.0
    """Share in 0..1 of values that are set to zero after every activation. Default: 0."""
