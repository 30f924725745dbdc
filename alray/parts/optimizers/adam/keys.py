"""`optimizer: adam`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.optimizer import Decay, DecayingSection
from alray.config.sections.section import PositiveFloat


class Adam(DecayingSection):
    """Adam. Weight decay is added to the gradient."""

    implementation = "optimizer:chosen"

    kind: Literal["adam"] = "adam"
    """`adam`."""
    lr: PositiveFloat = 1e-3
    """Learning rate. Default: 0.001."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and its square. Default: [0.9, 0.999]."""
    eps: PositiveFloat = 1e-8
    """Constant that is added to the denominator. Default: 1e-8."""
    fused: bool = False
    """Whether one kernel updates all parameters of a component. It rounds differently, so it changes the bits. Default:
    false."""
