"""Adam. Weight decay is added to the gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from alray.config.sections.optimizer import AdamSection, FusedSection

if TYPE_CHECKING:
    from torch import nn

    from alray.models.optimizers import Chosen, Role


class Adam(AdamSection, FusedSection):
    """Adam. Weight decay is added to the gradient."""

    implementation = "chosen"

    kind: Literal["adam"] = "adam"
    """`adam`."""


def chosen(section: Adam, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    import torch

    from alray.models.optimizers import Chosen, kernels

    settings = {"betas": tuple(section.betas), "eps": section.eps}
    return [Chosen(torch.optim.Adam, parameters, {**settings, **kernels(parameters, fused=section.fused)})]
