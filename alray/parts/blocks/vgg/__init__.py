"""`block: vgg`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.blocks import BlockSection
from alray.config.sections.section import Counts


class Vgg(BlockSection):
    """3x3 convolutions (padding 1, no bias), each with batch normalisation and ReLU, and an optional max pool."""

    implementation = "block:build"
    normalises_batches = True

    block: Literal["vgg"]
    """`vgg`."""
    channels: Counts
    """Output channels of each convolution, in order."""
    pool: bool = False
    """Whether the block ends with a 2x2 max pool, which halves height and width. Default: false."""

    def side_after(self, side: int) -> int:
        return side if not self.pool else side // 2 if side > 1 else 0
