"""`optimizer: lamb`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.optimizer import AdamSection
from alray.config.sections.section import PositiveFloat


class Lamb(AdamSection):
    """LAMB: layer-wise adaptive rates for large batches, on Adam (You et al. 2020, arXiv 1904.00962).

    Adam's update with decoupled weight decay is scaled to the norm of its weight tensor. Parameters of one dimension
    (biases, norms) are updated as by Adam, without weight decay.
    """

    implementation = "optimizer:chosen"

    kind: Literal["lamb"]
    """`lamb`."""
    eps: PositiveFloat = 1e-6
    """Constant that Adam adds to the denominator. Default: 1e-6."""
