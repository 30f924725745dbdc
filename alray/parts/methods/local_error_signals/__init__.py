"""`method: local_error_signals`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from alray.config.sections.head import HeadOrAuto
from alray.config.sections.kind import Finding
from alray.config.sections.method import ComparingSection
from alray.config.sections.paths import Path

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec


class LocalErrorSignals(ComparingSection):
    """Local error signals (predsim): a readout with cross-entropy, and similarities that match those of the labels.

    Nothing travels backwards, and every depth is a route.
    """

    implementation = "method:LocalErrorMethod"
    abbreviation = "LES"
    weighs_classes = True
    trains = "cross-entropy of a readout, similarities that match those of the labels"
    source = "Nøkland and Eidnes, ICML 2019"

    kind: Literal["local_error_signals"]
    """`local_error_signals`."""
    loss: Literal["predsim", "pred", "sim"] = "predsim"
    """`pred`: the cross-entropy of the readout. `sim`: the squared difference of the similarities of samples and of
    labels; the readout then trains without changing the encoder. `predsim`: both."""
    beta: Annotated[float, Field(ge=0, le=1)] = 0.99
    """Share of `sim` in `predsim`."""
    head: HeadOrAuto = "auto"
    """The readout after every encoder. `auto`: average to at most 4 x 4, flatten, one linear layer."""

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if self.loss != "pred" and spec.task.weights_of_classes is not None:
            message = "the similarities of samples have no weights of classes"
            yield (*at, "loss"), message, "set it to pred, or leave out task.class_weights"
