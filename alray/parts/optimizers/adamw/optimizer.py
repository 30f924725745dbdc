"""AdamW, by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from alray.models.optimizers import Chosen, Role, kernels
from alray.parts.optimizers.adamw.keys import AdamW


def chosen(section: AdamW, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    settings = {"betas": tuple(section.betas), "eps": section.eps}
    return [Chosen(torch.optim.AdamW, parameters, {**settings, **kernels(parameters, fused=section.fused)})]
