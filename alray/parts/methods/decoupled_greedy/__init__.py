"""`method: decoupled_greedy`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from alray.config.sections.head import HeadOrModel, LabelSmoothing
from alray.config.sections.kind import Finding
from alray.config.sections.method import GroupingSection
from alray.config.sections.paths import Path

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class DecoupledGreedy(GroupingSection):
    """Decoupled greedy learning (DGL): a classifier with the loss of the task after every component, or after every
    group of them.

    Nothing travels backwards, and every depth is a route.
    """

    implementation = "method:GreedyMethod"
    abbreviation = "DGL"
    tasks = None
    takes_shares = True
    weighs_classes = True
    trains = "the loss of a readout"
    source = "Belilovsky, Eickenberg and Oyallon, ICML 2020"

    kind: Literal["decoupled_greedy"]
    """`decoupled_greedy`."""
    head: HeadOrModel = "auto"
    """The classifier after every encoder. `auto`: average to at most 4 x 4, flatten, one linear layer. `model`: a copy
    of the classifier of the model that `model.from` names, for components whose outputs have one shape, as the layers
    of a Transformer have; `run.model()` then gives the whole model, trained."""
    label_smoothing: LabelSmoothing = 0.0
    """Share of the target spread evenly over all classes."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        yield from super().faults(spec, at)
        if self.head == "model" and spec.model.source is None:
            yield (
                (*at, "head"),
                "the components are blocks, and have no classifier of a model",
                "name a model by model.from, or choose `auto`",
            )
