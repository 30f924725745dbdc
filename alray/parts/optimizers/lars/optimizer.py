"""LARS for all parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from alray.models.optimizers import Chosen, Role
from alray.parts.optimizers.lars.keys import Lars
from alray.parts.optimizers.lars.lars import LarsOptimizer


def chosen(section: Lars, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    settings = {"momentum": section.momentum, "trust_coefficient": section.trust_coefficient, "eps": section.eps}
    return [Chosen(LarsOptimizer, parameters, settings)]
