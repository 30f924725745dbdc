"""Up to the highest rate and down again, each by half a cosine (Smith and Topin 2019, arXiv 1708.07120), as torch's
`OneCycleLR` has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from alray.config.sections.kind import Finding
from alray.config.sections.lr_schedule import LrScheduleSection
from alray.config.sections.paths import Path
from alray.config.sections.section import PositiveFloat

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec
    from alray.runtime.stage.learning_rate import Moment


class OneCycle(LrScheduleSection):
    """A rise from a low rate to the highest one, and a fall to a much lower one at the end of the run, each by half a
    cosine. The momentum stays."""

    implementation = "rate"

    kind: Literal["one_cycle"]
    """`one_cycle`."""
    max_lr: PositiveFloat | None = None
    """Highest rate. It is not scaled with the batch. null: that of the optimizer, which is."""
    pct_start: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Share of the run, in 0..1, in which the rate rises. Default: 0.3."""
    div_factor: PositiveFloat = 25.0
    """The highest rate divided by the first one. Default: 25."""
    final_div_factor: PositiveFloat = 1e4
    """The first rate divided by the last one. Default: 10000."""

    @property
    def ends_with_run(self) -> bool:
        return True

    def faults(self, spec: Spec, at: Path) -> Iterator[Finding]:
        if self.warmup_epochs:
            yield (*at, "warmup_epochs"), "`one_cycle` begins with a rise of its own", "leave it out, or set pct_start"


def rate(section: OneCycle, at: Moment) -> float:
    from alray.runtime.stage.learning_rate import between, cosine, share_of

    highest = at.full if section.max_lr is None else section.max_lr
    first = highest / section.div_factor
    updates = -(-at.total_steps // at.accumulate)
    done, turn = at.begun // at.accumulate, section.pct_start * updates - 1
    if done <= turn:
        return between(highest, first, cosine(share_of(done, turn)))
    return between(first / section.final_div_factor, highest, cosine(share_of(done - turn, updates - 1 - turn)))
