"""`optimizer: sgd`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from alray.config.sections.kind import Finding
from alray.config.sections.optimizer import Decay, FusedSection
from alray.config.sections.paths import Path

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class Sgd(FusedSection):
    """Stochastic gradient descent."""

    implementation = "optimizer:chosen"

    kind: Literal["sgd"]
    """`sgd`."""
    momentum: Decay = 0.0
    """Momentum. Default: 0."""
    nesterov: bool = False
    """Whether to use Nesterov momentum. Default: false."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if self.nesterov and self.momentum == 0:  # it is a form of momentum
            yield (*at, "nesterov"), "it needs momentum", "set optimizer.momentum, to 0.9 say"
