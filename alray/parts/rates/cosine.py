"""Half a cosine from the full rate at the end of warm-up to `final_lr` at the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from alray.config.sections.lr_schedule import LrScheduleSection
from alray.config.sections.section import NonNegativeFloat

if TYPE_CHECKING:
    from alray.runtime.stage.learning_rate import Moment


class Cosine(LrScheduleSection):
    """Half a cosine, from the optimizer's rate to `final_lr` at the end of the run."""

    implementation = "rate"

    kind: Literal["cosine"]
    """`cosine`."""
    final_lr: NonNegativeFloat = 0.0
    """Learning rate at the end of the run. It is not scaled with the batch. Default: 0."""

    @property
    def ends_with_run(self) -> bool:
        return True


def rate(section: Cosine, at: Moment) -> float:
    from alray.runtime.stage.learning_rate import between, cosine

    share = at.share_since_warm_up(at.total_steps - at.warm_up)
    return between(section.final_lr, at.full, cosine(share))
