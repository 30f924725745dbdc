"""Straight from the full rate at the end of warm-up to `final_factor` times it, then constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from alray.config.sections.lr_schedule import LrScheduleSection, Share

if TYPE_CHECKING:
    from alray.runtime.stage.learning_rate import Moment


class Linear(LrScheduleSection):
    """A linear decay from the optimizer's rate to `final_factor` times that rate, then constant."""

    implementation = "rate"

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


def rate(section: Linear, at: Moment) -> float:
    from alray.runtime.stage.learning_rate import between

    decay = section.decay_share * (at.total_steps - at.warm_up)
    return at.full * between(1.0, section.final_factor, at.share_since_warm_up(decay))
