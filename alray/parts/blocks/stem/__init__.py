"""`block: stem`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.blocks import BlockSection
from alray.config.sections.section import Width


class Stem(BlockSection):
    """The first component of a ResNet: a 3x3 convolution (padding 1, no bias), batch normalisation, ReLU."""

    implementation = "block:build"
    normalises_batches = True

    block: Literal["stem"]
    """`stem`."""
    channels: Width
    """Output channels."""

    def side_after(self, side: int) -> int:
        return side
