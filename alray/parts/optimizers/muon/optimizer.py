"""Muon and AdamW, by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from alray.models.optimizers import Chosen, Role, kernels
from alray.parts.optimizers.muon.keys import Muon


def chosen(section: Muon, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    """Muon for weights of two dimensions in hidden layers, AdamW for all other parameters."""
    matrices = [each for each in parameters if each.ndim == 2 and roles.get(each, Role()).hidden]
    of_muon = set(matrices)
    others = [each for each in parameters if each not in of_muon]
    settings = {"momentum": section.momentum, "nesterov": section.nesterov, "adjust_lr_fn": "match_rms_adamw"}
    adamw = {"betas": tuple(section.betas), "eps": section.eps, **kernels(parameters)}
    rate_factor = 1.0 if section.other_lr is None else section.other_lr / section.lr
    return [Chosen(torch.optim.Muon, matrices, settings), Chosen(torch.optim.AdamW, others, adamw, rate_factor)]
