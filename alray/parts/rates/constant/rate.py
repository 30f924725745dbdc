"""The full rate throughout."""

from __future__ import annotations

from alray.parts.rates.constant.keys import Constant
from alray.runtime.stage.learning_rate import Moment


def rate(section: Constant, at: Moment) -> float:
    return at.full
