"""`lr_schedule: one_cycle`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from alray.config.sections.duration import CountedDuration
from alray.config.sections.lr_schedule import LrScheduleSection, Share


class OneCycle(LrScheduleSection):
    """One rise to the optimizer's rate and one longer fall to almost zero (Smith and Topin 2018, arXiv 1708.07120).

    The rates are those of torch's OneCycleLR. Momentum stays as it is.
    """

    implementation = "rate:rate"
    starts_low = True

    kind: Literal["one_cycle"]
    """`one_cycle`."""
    rise: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Share of the length during which the rate rises. Default: 0.3."""
    anneal: Literal["cosine", "linear"] = "cosine"
    """Form of the rise and of the fall. Default: cosine."""
    first_factor: Share = 0.04
    """Rate of the first mini-batch as a share in 0..1 of the optimizer's rate. Default: 0.04."""
    final_factor: Share = 4e-6
    """Rate of the last mini-batch as a share in 0..1 of the optimizer's rate. Default: 4e-6."""
    length: CountedDuration | None = None
    """Length of the cycle: `N steps`, `N samples` or `N epochs`. The rate stays at its end afterwards. null: the whole
    run."""

    @property
    def ends_with_run(self) -> bool:
        return self.length is None
