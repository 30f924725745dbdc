"""`lr_schedule`: how the learning rate changes during a run."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from alray.config.sections.choice import Choice
from alray.config.sections.duration import CountedDuration
from alray.config.sections.section import NonNegativeFloat, PositiveFloat, PositiveInt, Section, refusal

Share = Annotated[float, Field(ge=0, le=1)]


class LrScheduleSection(Section):
    """The keys of every schedule of the learning rate."""

    starts_low: ClassVar[bool] = False
    """Whether the rate rises at the start by itself, so that a warm-up would come before a rise."""

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

    @property
    def ends_with_run(self) -> bool:
        """Whether the rates depend on the length of the run."""
        return False


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

    @property
    def ends_with_run(self) -> bool:
        return True


class Linear(LrScheduleSection):
    """A linear decay from the optimizer's rate to `final_factor` times that rate, then constant."""

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

    @model_validator(mode="after")
    def _has_one_length(self) -> Linear:
        if self.decay_steps is not None and self.decay_share != 1.0:
            raise refusal("a decay has a length in mini-batches or as a share, not both", "remove one of them")
        return self


class Step(LrScheduleSection):
    """A rate that is multiplied by `factor` again and again, with a constant rate in between.

    The time is counted from the start of the run, also with a warm-up. A part of an epoch is rounded to whole
    mini-batches.
    """

    kind: Literal["step"]
    """`step`."""
    every: CountedDuration
    """Time between two changes of the rate: `N steps`, `N samples` or `N epochs`."""
    factor: PositiveFloat = 0.1
    """Factor by which the rate is multiplied each time. Default: 0.1."""


class MultiStep(LrScheduleSection):
    """A rate that is multiplied by `factor` at given times, with a constant rate in between.

    Times are counted from the start of the run, also with a warm-up. Parts of an epoch are rounded to whole
    mini-batches.
    """

    kind: Literal["multi_step"]
    """`multi_step`."""
    at: Annotated[tuple[CountedDuration, ...], Field(strict=False, min_length=1)]
    """Times at which the rate changes, each as `N steps`, `N samples` or `N epochs`."""
    factor: PositiveFloat = 0.1
    """Factor by which the rate is multiplied each time. Default: 0.1."""


class Rising(LrScheduleSection):
    """A linear rise from `first_factor` to `final_factor` times the optimizer's rate, then constant."""

    starts_low = True

    kind: Literal["rising"]
    """`rising`."""
    first_factor: NonNegativeFloat = 0.1
    """Rate of the first mini-batch as a multiple of the optimizer's rate. Default: 0.1."""
    final_factor: PositiveFloat = 1.0
    """Rate after the rise as a multiple of the optimizer's rate. Default: 1."""
    length: CountedDuration | None = None
    """Length of the rise: `N steps`, `N samples` or `N epochs`. null: until the end of the run."""

    @property
    def ends_with_run(self) -> bool:
        return self.length is None


class OneCycle(LrScheduleSection):
    """One rise to the optimizer's rate and one longer fall to almost zero (Smith and Topin 2018, arXiv 1708.07120).

    The rates are those of torch's OneCycleLR. Momentum stays as it is.
    """

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


LrSchedule = Annotated[
    Annotated[Constant, Tag("constant")]
    | Annotated[Cosine, Tag("cosine")]
    | Annotated[Linear, Tag("linear")]
    | Annotated[Step, Tag("step")]
    | Annotated[MultiStep, Tag("multi_step")]
    | Annotated[Rising, Tag("rising")]
    | Annotated[OneCycle, Tag("one_cycle")],
    Discriminator(Choice("kind", default="constant")),
]
