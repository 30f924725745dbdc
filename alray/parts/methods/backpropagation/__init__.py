"""`method: backpropagation`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from alray.config.sections.head import HeadOrAuto, LabelSmoothing
from alray.config.sections.kind import Finding
from alray.config.sections.method import MethodSection
from alray.config.sections.paths import Path

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class Backpropagation(MethodSection):
    """Backpropagation of the loss of the task, in classification the cross-entropy, through all components."""

    implementation = "method:BackpropagationMethod"
    abbreviation = "BP"
    tasks = None
    takes_shares = True
    weighs_classes = True
    trains = "the gradient of the last loss"
    travels = "s; the gradient travels down"
    every_depth = False
    source = "Rumelhart, Hinton and Williams 1986"
    local_losses = False
    takes_model_head = True

    kind: Literal["backpropagation"]
    """`backpropagation`."""
    head: HeadOrAuto = "auto"
    """The layers after the last encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target spread evenly over all classes."""
    tied: bool = False
    """Whether the last layer is the matrix of the tokens' vectors, as in GPT-2. Only for `task: next_token`, where one
    component holds the whole network."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if self.tied and spec.task.kind != "next_token":
            yield (*at, "tied"), f"the task {spec.task.kind} has no tokens", "leave it out"
        elif self.tied and self.head != "auto":
            yield (*at, "head"), "a tied readout has no further layers", "leave `head` or `tied` out"
