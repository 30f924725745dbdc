"""`lr_schedule: rising`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.duration import CountedDuration
from alray.config.sections.lr_schedule import LrScheduleSection
from alray.config.sections.section import NonNegativeFloat, PositiveFloat


class Rising(LrScheduleSection):
    """A linear rise from `first_factor` to `final_factor` times the optimizer's rate, then constant."""

    implementation = "rate:rate"
    starts_low = True

    kind: Literal["rising"]
    """`rising`."""
    first_factor: NonNegativeFloat = 0.1
    """Rate of the first mini-batch as a multiple of the optimizer's rate. Default: 0.1."""
    final_factor: PositiveFloat = 1.0
    """Rate after the rise as a multiple of the optimizer's rate. Default: 1."""
    length: CountedDuration | None = None
    """Length of the rise: `N steps`, `N samples` or `N epochs`. null: until the end of the run."""

    @property
    def ends_with_run(self) -> bool:
        return self.length is None
