"""Stochastic gradient descent, by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from alray.models.optimizers import Chosen, Role, kernels
from alray.parts.optimizers.sgd.keys import Sgd


def chosen(section: Sgd, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    settings = {"momentum": section.momentum, "nesterov": section.nesterov}
    return [Chosen(torch.optim.SGD, parameters, {**settings, **kernels(parameters, fused=section.fused)})]
