"""`method: forward_forward`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.method import MethodSection
from alray.config.sections.section import PositiveFloat


class ForwardForward(MethodSection):
    """Forward-Forward (FF): rows with the right label get a high goodness at every component, those with a wrong one a
    low one.

    Nothing travels backwards, and every depth is a route. The label is written over the first values of a sample.
    """

    implementation = "method:ForwardForwardMethod"
    abbreviation = "FF"
    trains = "goodness of a row with the label and of one with a wrong label"
    source = "Hinton 2022, arXiv 2212.13345; SymBa: arXiv 2303.08418"

    kind: Literal["forward_forward"]
    """`forward_forward`."""
    loss: Literal["threshold", "symba"] = "threshold"
    """`threshold`: the goodness of each row against a threshold. `symba`: that of both rows against each other."""
    alpha: PositiveFloat = 0.5
    """The factor of the difference in SymBa's loss. The goodness is a sum over d values here. Where it is their mean,
    the same loss has a factor d times as large. On the digits 0.5 is more accurate than 4. Default: 0.5."""
    peer_normalisation: Annotated[float, Field(ge=0)] = 0.03
    """Weight of a term that keeps the mean activities of a component's values together. 0: no such term."""
    prediction: Literal["goodness", "activities"] = "goodness"
    """How a route predicts, by all its components but the first. `goodness`: by the sum of the goodness of each label,
    which takes a row for each class. `activities`: by the sum of the scores of classifiers, which read a row without a
    label and train without changing the encoders."""

    @classmethod
    def compares_samples(cls) -> bool:
        """The mean activities do."""
        return True
