"""`block: linear`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.blocks import BlockSection, LayerActivation
from alray.config.sections.section import Width


class LinearLayer(BlockSection):
    """One linear layer. Images are flattened. In a sequence, it is applied to each position."""

    implementation = "block:build"

    block: Literal["linear"]
    """`linear`."""
    width: Width
    """Output width."""
    activation: LayerActivation = "relu"
    """Activation after the layer. Default: relu."""
