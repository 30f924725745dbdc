"""LAMB for all parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from alray.models.optimizers import Chosen, Role
from alray.parts.optimizers.lamb.keys import Lamb
from alray.parts.optimizers.lamb.lamb import LambOptimizer


def chosen(section: Lamb, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    return [Chosen(LambOptimizer, parameters, {"betas": tuple(section.betas), "eps": section.eps})]
