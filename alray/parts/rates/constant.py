"""The full rate throughout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from alray.config.sections.lr_schedule import LrScheduleSection

if TYPE_CHECKING:
    from alray.runtime.stage.learning_rate import Moment


class Constant(LrScheduleSection):
    """A constant rate."""

    implementation = "rate"

    kind: Literal["constant"] = "constant"
    """`constant`."""


def rate(section: Constant, at: Moment) -> float:
    return at.full
