"""`block: residual`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.blocks import BlockSection, NumLayers
from alray.config.sections.section import Width


class Residual(BlockSection):
    """Basic blocks of a ResNet: two 3x3 convolutions with batch normalisation and ReLU, and a shortcut around them."""

    implementation = "block:build"
    normalises_batches = True

    block: Literal["residual"]
    """`residual`."""
    channels: Width
    """Output channels of every convolution."""
    layers: NumLayers
    """Number of basic blocks. Each has two convolutions."""
    stride: Annotated[int, Field(ge=1, le=1000)] = 1
    """Stride of the first convolution. It divides height and width, rounded up. Default: 1."""
    shortcut: Literal["3x3", "1x1"] = "3x3"
    """Convolution in the shortcut of a basic block that changes the shape. Other basic blocks have no convolution
    there. Default: 3x3."""

    def side_after(self, side: int) -> int:
        return -(-side // self.stride)
