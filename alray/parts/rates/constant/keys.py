"""`lr_schedule: constant`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.lr_schedule import LrScheduleSection


class Constant(LrScheduleSection):
    """A constant rate."""

    implementation = "rate:rate"
    changes = False

    kind: Literal["constant"] = "constant"
    """`constant`."""
