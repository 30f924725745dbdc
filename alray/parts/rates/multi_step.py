"""The full rate times `factor` for each entry of `at` that has passed since the start of the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from alray.config.sections.duration import CountedDuration
from alray.config.sections.kind import Begin, MiniBatches
from alray.config.sections.lr_schedule import LrScheduleSection
from alray.config.sections.section import PositiveFloat

if TYPE_CHECKING:
    from alray.runtime.stage.learning_rate import Moment


class MultiStep(LrScheduleSection):
    """A rate that is multiplied by `factor` at given times, with a constant rate in between.

    Times are counted from the start of the run, also with a warm-up. Parts of an epoch are rounded to whole
    mini-batches.
    """

    implementation = "rate"

    kind: Literal["multi_step"]
    """`multi_step`."""
    at: Annotated[tuple[CountedDuration, ...], Field(strict=False, min_length=1)]
    """Times at which the rate changes, each as `N steps`, `N samples` or `N epochs`."""
    factor: PositiveFloat = 0.1
    """Factor by which the rate is multiplied each time. Default: 0.1."""

    def begins(self, mini_batches: MiniBatches) -> Iterator[Begin]:
        yield from super().begins(mini_batches)
        for time in self.at:
            yield "at", mini_batches(time) + 1, f"after the change of the rate at {time}"


def rate(section: MultiStep, at: Moment) -> float:
    return at.full * section.factor ** sum(at.begun >= at.mini_batches(each) for each in section.at)
