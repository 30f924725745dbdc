"""LAMB: layer-wise adaptive rates for large batches, on Adam (You et al. 2020, arXiv 1904.00962)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from alray.config.sections.optimizer import AdamSection
from alray.config.sections.section import PositiveFloat

if TYPE_CHECKING:
    from torch import nn

    from alray.models.optimizers import Chosen, Role


class Lamb(AdamSection):
    """LAMB: layer-wise adaptive rates for large batches, on Adam (You et al. 2020, arXiv 1904.00962).

    Adam's update with decoupled weight decay is scaled to the norm of its weight tensor. Parameters of one dimension
    (biases, norms) are updated as by Adam, without weight decay.
    """

    implementation = "chosen"

    kind: Literal["lamb"]
    """`lamb`."""
    eps: PositiveFloat = 1e-6
    """Constant that Adam adds to the denominator. Default: 1e-6."""


def chosen(section: Lamb, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    from alray.models.optimizers import Chosen
    from alray.models.tensorwise import LambOptimizer

    return [Chosen(LambOptimizer, parameters, {"betas": tuple(section.betas), "eps": section.eps})]
