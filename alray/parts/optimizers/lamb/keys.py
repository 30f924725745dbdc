"""`optimizer: lamb`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.optimizer import Decay, OptimizerSection
from alray.config.sections.section import PositiveFloat


class Lamb(OptimizerSection):
    """LAMB: layer-wise adaptive rates for large batches, on Adam (You et al. 2020, arXiv 1904.00962).

    Adam's update with decoupled weight decay is scaled to the norm of its weight tensor. Parameters of one dimension
    (biases, norms) are updated as by Adam, without weight decay.
    """

    implementation = "optimizer:chosen"
    kind: Literal["lamb"]
    """`lamb`."""
    lr: PositiveFloat = 1e-3
    """Learning rate. Default: 0.001."""
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and its square. Default: [0.9, 0.999]."""
    eps: PositiveFloat = 1e-6
    """Constant that is added to the denominator. Default: 1e-6."""
