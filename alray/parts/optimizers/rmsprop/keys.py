"""`optimizer: rmsprop`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.optimizer import Decay, DecayingSection
from alray.config.sections.section import PositiveFloat


class RmsProp(DecayingSection):
    """RMSprop. Weight decay is added to the gradient."""

    implementation = "optimizer:chosen"

    kind: Literal["rmsprop"]
    """`rmsprop`."""
    lr: PositiveFloat = 1e-2
    """Learning rate. Default: 0.01."""
    alpha: Decay = 0.99
    """Decay rate of the running mean of the squared gradient. Default: 0.99."""
    momentum: Decay = 0.0
    """Momentum. Default: 0."""
    centered: bool = False
    """Whether the gradient is divided by its standard deviation instead of its root mean square. Default: false."""
    eps: PositiveFloat = 1e-8
    """Constant that is added to the denominator. Default: 1e-8."""
