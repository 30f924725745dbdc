"""One rise to the full rate and one longer fall (Smith and Topin 2018, arXiv 1708.07120)."""

from __future__ import annotations

from typing import Literal

from alray.parts.rates.one_cycle.keys import OneCycle
from alray.runtime.stage.learning_rate import Moment, between, cosine, share_of


def rate(section: OneCycle, at: Moment) -> float:
    """From `first_factor` times the full rate up to it, over the share `rise` of `length`, then down to `final_factor`
    times it. As in torch's OneCycleLR, an update has the peak and the last one the end, not the one after them."""
    length = at.length(section.length)
    peak, end = section.rise * length - at.accumulate, length - at.accumulate
    if at.begun <= peak:
        return at.full * _annealed(section.anneal, section.first_factor, 1.0, share_of(at.begun, peak))
    return at.full * _annealed(section.anneal, 1.0, section.final_factor, share_of(at.begun - peak, end - peak))


def _annealed(how: Literal["cosine", "linear"], first: float, last: float, share: float) -> float:
    return between(last, first, cosine(share)) if how == "cosine" else between(first, last, share)
