"""RMSprop, by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from alray.models.optimizers import Chosen, Role, kernels
from alray.parts.optimizers.rmsprop.keys import RmsProp


def chosen(section: RmsProp, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    settings = {"alpha": section.alpha, "eps": section.eps, "momentum": section.momentum, "centered": section.centered}
    return [Chosen(torch.optim.RMSprop, parameters, {**settings, **kernels(parameters)})]
