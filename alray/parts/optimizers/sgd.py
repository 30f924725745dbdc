"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from alray.config.sections.kind import Finding
from alray.config.sections.optimizer import Decay, FusedSection
from alray.config.sections.paths import Path

if TYPE_CHECKING:
    from torch import nn

    from alray.config.sections.spec import Spec
    from alray.models.optimizers import Chosen, Role


class Sgd(FusedSection):
    """Stochastic gradient descent."""

    implementation = "chosen"

    kind: Literal["sgd"]
    """`sgd`."""
    momentum: Decay = 0.0
    """Momentum. Default: 0."""
    nesterov: bool = False
    """Whether to use Nesterov momentum. Default: false."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if self.nesterov and self.momentum == 0:  # it is a form of momentum
            yield (*at, "nesterov"), "it needs momentum", "set optimizer.momentum, to 0.9 say"


def chosen(section: Sgd, parameters: Sequence[nn.Parameter], roles: Mapping[nn.Parameter, Role]) -> list[Chosen]:
    import torch

    from alray.models.optimizers import Chosen, kernels

    settings = {"momentum": section.momentum, "nesterov": section.nesterov}
    return [Chosen(torch.optim.SGD, parameters, {**settings, **kernels(parameters, fused=section.fused)})]
