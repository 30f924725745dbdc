"""Straight from the full rate at the end of warm-up to `final_factor` times it, then constant."""

from __future__ import annotations

from alray.parts.rates.linear.keys import Linear
from alray.runtime.stage.learning_rate import Moment, between


def rate(section: Linear, at: Moment) -> float:
    decay = section.decay_share * (at.length() - at.warm_up)
    return at.full * between(1.0, section.final_factor, at.share_since_warm_up(decay))
