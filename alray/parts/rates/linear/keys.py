"""`lr_schedule: linear`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.lr_schedule import LrScheduleSection, Share


class Linear(LrScheduleSection):
    """A linear decay from the optimizer's rate to `final_factor` times that rate, then constant."""

    implementation = "rate:rate"

    kind: Literal["linear"]
    """`linear`."""
    final_factor: Share = 0.01
    """Rate after the decay as a share in 0..1 of the optimizer's rate. Default: 0.01."""
    decay_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Length of the decay as a share of the mini-batches after the warm-up, in 0..1. Default: 1, to the end of the
    run."""

    @property
    def ends_with_run(self) -> bool:
        return True
