"""`lr_schedule: step`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.duration import CountedDuration
from alray.config.sections.lr_schedule import LrScheduleSection
from alray.config.sections.section import PositiveFloat


class Step(LrScheduleSection):
    """A rate that is multiplied by `factor` again and again, with a constant rate in between.

    The time is counted from the start of the run, also with a warm-up. A part of an epoch is rounded to whole
    mini-batches.
    """

    implementation = "rate:rate"

    kind: Literal["step"]
    """`step`."""
    every: CountedDuration
    """Time between two changes of the rate: `N steps`, `N samples` or `N epochs`."""
    factor: PositiveFloat = 0.1
    """Factor by which the rate is multiplied each time. Default: 0.1."""
