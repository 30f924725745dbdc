"""`method: local_error_signals`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.head import HeadOrAuto
from alray.config.sections.method import ComparingSection


class LocalErrorSignals(ComparingSection):
    """Local error signals (predsim): a readout with cross-entropy, and similarities that match those of the labels.

    Nothing travels backwards, and every depth is a route.
    """

    implementation = "method:LocalErrorMethod"
    abbreviation = "LES"
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
