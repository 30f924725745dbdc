"""Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from alray.config.sections.optimizer import AdamSection, FusedSection
from alray.config.sections.section import NonNegativeFloat

if TYPE_CHECKING:
    from torch import nn

    from alray.models.optimizers import Chosen, Role


class AdamW(AdamSection, FusedSection):
    """Adam with decoupled weight decay."""

    implementation = "chosen"

    kind: Literal["adamw"]
    """`adamw`."""
    weight_decay: NonNegativeFloat = 0.01
    """Weight decay, applied directly to the weights. Default: 0.01."""


def chosen(section: AdamW, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    import torch

    from alray.models.optimizers import Chosen, kernels

    settings = {"betas": tuple(section.betas), "eps": section.eps}
    return [Chosen(torch.optim.AdamW, parameters, {**settings, **kernels(parameters, fused=section.fused)})]
