"""Straight from `first_factor` to `final_factor` times the full rate, over `length`, then constant."""

from __future__ import annotations

from alray.parts.rates.rising.keys import Rising
from alray.runtime.stage.learning_rate import Moment, between, share_of


def rate(section: Rising, at: Moment) -> float:
    share = share_of(at.begun, at.length(section.length))
    return at.full * between(section.first_factor, section.final_factor, share)
