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
    """Epochs in which the rate rises linearly, with every mini-batch, to its full height before the schedule begins."""
    warmup_from: Literal["zero", "base"] = "zero"
    """Where the rise begins. `zero`: the last mini-batch of the warm-up has the full rate. `base`: the first mini-batch
    has the optimizer's own rate and the first after the warm-up the rate scaled with the batch (Goyal et al. 2017);
    without `scale_with_batch` nothing rises."""
    scale_with_batch: Literal["none", "linear", "square_root"] = "none"
    """What the optimizer's rates, each tuned at `reference_batch_size`, are multiplied by. `linear`: samples of an
    update (`data.batch_size` times `optimizer.accumulate`) over that size. `square_root`: the root of it."""
    reference_batch_size: PositiveInt | None = None
    """Samples of an update for which the optimizer's rates are meant. Needed by `scale_with_batch`."""


class Constant(LrScheduleSection):
    """The same rate to the end."""

    kind: Literal["constant"] = "constant"
    """`constant`."""


class Cosine(LrScheduleSection):
    """Half a cosine from the optimizer's rate down to `final_lr` at the end of the run."""

    kind: Literal["cosine"]
    """`cosine`."""
    final_lr: NonNegativeFloat = 0.0
    """Learning rate at the end, whatever the batch."""


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
