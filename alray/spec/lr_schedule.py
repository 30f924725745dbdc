"""`lr_schedule`: how the learning rate changes in the course of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from alray.spec.choice import Choice
from alray.spec.section import NonNegativeFloat, PositiveInt, Section


class LrScheduleSection(Section):
    """What every schedule of the learning rate has."""

    kind: str
    """Which schedule."""
    warmup_epochs: NonNegativeFloat = 0.0
    """Epochs in which the rate rises linearly to its full height before the schedule begins."""


class Constant(LrScheduleSection):
    """The same rate to the end."""

    kind: Literal["constant"] = "constant"
    """`constant`."""


class Cosine(LrScheduleSection):
    """Half a cosine from the optimizer's rate down to `final_lr` at the end of the run."""

    kind: Literal["cosine"]
    """`cosine`."""
    final_lr: NonNegativeFloat = 0.0
    """Learning rate at the end."""


class Linear(LrScheduleSection):
    """A straight line from the optimizer's rate down to `final_factor` times it, then constant."""

    kind: Literal["linear"]
    """`linear`."""
    final_factor: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Share of the optimizer's rate that is left after the decay."""
    decay_steps: PositiveInt | None = None
    """Length of the decay in mini-batches. null: to the end of the run."""


LrSchedule = Annotated[
    Annotated[Constant, Tag("constant")] | Annotated[Cosine, Tag("cosine")] | Annotated[Linear, Tag("linear")],
    Discriminator(Choice("kind", default="constant")),
]
