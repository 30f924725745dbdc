"""`lr_schedule`: how the learning rate changes during a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from alray.spec.choice import Choice
from alray.spec.section import NonNegativeFloat, PositiveInt, Section


class LrScheduleSection(Section):
    """The keys of every schedule of the learning rate."""

    kind: str
    """Name of the schedule."""
    warmup_epochs: NonNegativeFloat = 0.0
    """Length of the warm-up in epochs. During the warm-up the rate rises linearly with every mini-batch; then the
    schedule starts. Default: 0."""
    warmup_from: Literal["zero", "base"] = "zero"
    """Rate at which the warm-up starts. `zero`: it starts at zero, and the last mini-batch of the warm-up has the full
    rate. `base`: the first mini-batch has the rate of the optimizer, and the first one after the warm-up has the rate
    scaled by `scale_with_batch` (Goyal et al. 2017); without that scaling the rate does not change. Default: zero."""
    scale_with_batch: Literal["none", "linear", "square_root"] = "none"
    """Scaling of the optimizer's rates, which are meant for `reference_batch_size`. `linear`: the rates are multiplied
    by the number of samples in an update (`data.batch_size` times `optimizer.accumulate`) divided by that size.
    `square_root`: by the square root of that quotient. Default: none."""
    reference_batch_size: PositiveInt | None = None
    """Number of samples in an update for which the optimizer's rates are meant. `scale_with_batch` needs it."""


class Constant(LrScheduleSection):
    """A constant rate."""

    kind: Literal["constant"] = "constant"
    """`constant`."""


class Cosine(LrScheduleSection):
    """Half a cosine, from the optimizer's rate to `final_lr` at the end of the run."""

    kind: Literal["cosine"]
    """`cosine`."""
    final_lr: NonNegativeFloat = 0.0
    """Learning rate at the end of the run. It is not scaled with the batch. Default: 0."""


class Linear(LrScheduleSection):
    """A linear decay from the optimizer's rate to `final_factor` times that rate, then constant."""

    kind: Literal["linear"]
    """`linear`."""
    final_factor: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Rate after the decay as a share in 0..1 of the optimizer's rate. Default: 0.01."""
    decay_steps: PositiveInt | None = None
    """Length of the decay in mini-batches. null: until the end of the run."""


LrSchedule = Annotated[
    Annotated[Constant, Tag("constant")] | Annotated[Cosine, Tag("cosine")] | Annotated[Linear, Tag("linear")],
    Discriminator(Choice("kind", default="constant")),
]
