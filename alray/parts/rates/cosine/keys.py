"""`lr_schedule: cosine`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.lr_schedule import LrScheduleSection
from alray.config.sections.section import NonNegativeFloat


class Cosine(LrScheduleSection):
    """Half a cosine, from the optimizer's rate to `final_lr` at the end of the run."""

    implementation = "rate:rate"

    kind: Literal["cosine"]
    """`cosine`."""
    final_lr: NonNegativeFloat = 0.0
    """Learning rate at the end of the run. It is not scaled with the batch. Default: 0."""

    @property
    def ends_with_run(self) -> bool:
        return True
