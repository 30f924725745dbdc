"""Muon: momentum whose matrices are orthogonalised (Jordan et al. 2024), as torch has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from alray.config.sections.optimizer import AdamSection, Decay, DecayingSection
from alray.config.sections.section import NonNegativeFloat, PositiveFloat

if TYPE_CHECKING:
    from torch import nn

    from alray.models.optimizers import Chosen, Role


class Muon(AdamSection, DecayingSection):
    """Muon: momentum whose matrices are orthogonalised (Jordan et al. 2024), as torch has it.

    It updates weights of two dimensions. AdamW updates all other parameters, among them biases, norms, convolutions,
    embeddings and classifiers (the part `head`). The rate of a matrix of r rows and c columns is multiplied by
    0.2 sqrt(max(r, c)), with which rates that suit AdamW suit Muon (Liu et al. 2025, arXiv 2502.16982).
    """

    implementation = "chosen"

    kind: Literal["muon"]
    """`muon`."""
    other_lr: PositiveFloat | None = None
    """Learning rate of the parameters that AdamW updates. It follows `lr_schedule` in the same proportion as
    `lr` does. null: the value of `lr`."""
    weight_decay: NonNegativeFloat = 0.1
    """Weight decay, applied directly to the weights. Default: 0.1."""
    momentum: Decay = 0.95
    """Momentum. Default: 0.95."""
    nesterov: bool = True
    """Whether to use Nesterov momentum. Default: true."""


def chosen(section: Muon, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    """Muon for weights of two dimensions in hidden layers, AdamW for all other parameters."""
    import torch

    from alray.models.optimizers import Chosen, Role, kernels

    matrices = [each for each in parameters if each.ndim == 2 and roles.get(each, Role()).hidden]
    of_muon = set(matrices)
    others = [each for each in parameters if each not in of_muon]
    settings = {"momentum": section.momentum, "nesterov": section.nesterov, "adjust_lr_fn": "match_rms_adamw"}
    adamw = {"betas": tuple(section.betas), "eps": section.eps, **kernels(parameters)}
    rate_factor = 1.0 if section.other_lr is None else section.other_lr / section.lr
    return [Chosen(torch.optim.Muon, matrices, settings), Chosen(torch.optim.AdamW, others, adamw, rate_factor)]
