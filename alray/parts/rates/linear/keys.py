"""`lr_schedule: linear`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from alray.config.sections.kind import Begin, MiniBatches
from alray.config.sections.lr_schedule import LrScheduleSection, Share
from alray.config.sections.section import PositiveInt, refusal


class Linear(LrScheduleSection):
    """A linear decay from the optimizer's rate to `final_factor` times that rate, then constant."""

    implementation = "rate:rate"

    kind: Literal["linear"]
    """`linear`."""
    final_factor: Share = 0.01
    """Rate after the decay as a share in 0..1 of the optimizer's rate. Default: 0.01."""
    decay_steps: PositiveInt | None = None
    """Length of the decay in mini-batches. null: `decay_share` says it."""
    decay_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Length of the decay as a share of the mini-batches after the warm-up, in 0..1. Default: 1, to the end of the
    run."""

    @property
    def ends_with_run(self) -> bool:
        return self.decay_steps is None

    def begins(self, mini_batches: MiniBatches) -> Iterator[Begin]:
        yield from super().begins(mini_batches)
        if self.decay_steps is not None:
            yield "decay_steps", self.warm_up(mini_batches) + self.decay_steps, "at the end of the decay"

    @model_validator(mode="after")
    def _has_one_length(self) -> Linear:
        if self.decay_steps is not None and self.decay_share != 1.0:
            raise refusal("a decay has a length in mini-batches or as a share, not both", "remove one of them")
        return self
