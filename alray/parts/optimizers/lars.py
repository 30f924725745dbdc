"""LARS: layer-wise adaptive rates for large batches, with momentum (You et al. 2017, arXiv 1708.03888)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from alray.config.sections.optimizer import Decay, OptimizerSection
from alray.config.sections.section import PositiveFloat

if TYPE_CHECKING:
    from torch import nn

    from alray.models.optimizers import Chosen, Role


class Lars(OptimizerSection):
    """LARS: layer-wise adaptive rates for large batches, with momentum (You et al. 2017, arXiv 1708.03888).

    The rate of a weight tensor is `lr * trust_coefficient * |w| / (|g| + weight_decay * |w| + eps)`. Parameters of one
    dimension (biases, norms) have the rate `lr` and no weight decay.
    """

    implementation = "chosen"
    kind: Literal["lars"]
    """`lars`."""
    momentum: Decay = 0.9
    """Momentum. Default: 0.9."""
    trust_coefficient: PositiveFloat = 1e-3
    """Largest change of a weight tensor in one update relative to its norm, for a rate of 1. Default: 0.001."""
    eps: PositiveFloat = 1e-8
    """Constant that is added to the denominator. Default: 1e-8."""


def chosen(section: Lars, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    from alray.models.optimizers import Chosen
    from alray.models.tensorwise import LarsOptimizer

    settings = {"momentum": section.momentum, "trust_coefficient": section.trust_coefficient, "eps": section.eps}
    return [Chosen(LarsOptimizer, parameters, settings)]
