"""`optimizer: adamw`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.optimizer import AdamSection, FusedSection
from alray.config.sections.section import NonNegativeFloat


class AdamW(AdamSection, FusedSection):
    """Adam with decoupled weight decay."""

    implementation = "optimizer:chosen"

    kind: Literal["adamw"]
    """`adamw`."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay, applied directly to the weights. Default: 0.01."""
