"""`lr_schedule`: how the learning rate changes during a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from alray.config.sections.duration import Duration
from alray.config.sections.kind import Begin, Kind, MiniBatches, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode
from alray.config.sections.section import NonNegativeFloat, PositiveInt
from alray.core.metric import Metric
from alray.core.run_folder.records import Plateau

Share = Annotated[float, Field(ge=0, le=1)]


class LrScheduleSection(PartSection):
    """The keys of every schedule of the learning rate."""

    chosen_by = ("kind", "warmup_epochs", "warmup_from", "scale_with_batch", "reference_batch_size")

    follows_metric: ClassVar[bool] = False
    """Whether they depend on the metric of the validation set."""

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

    def after(self, before: Plateau, value: float | None, metric: Metric) -> Plateau:
        """What a rate that follows the metric knows after an evaluation.

        Args:
            value: of the validation set; None: it is not defined there.
        """
        return before

    def warm_up(self, mini_batches: MiniBatches) -> int:
        """The number of mini-batches of the warm-up."""
        return mini_batches(Duration(self.warmup_epochs, "epochs"))

    def begins(self, mini_batches: MiniBatches) -> Iterator[Begin]:
        if self.warmup_epochs:
            yield "warmup_epochs", self.warm_up(mini_batches), "with the full rate"


class OwnRate(OwnCode, LrScheduleSection, extra="allow"):
    """A schedule of the user; the keys that are not listed here go to its constructor."""

    kind: Annotated[Name, OfPackage("alray.rates")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. An object of it is
    called with an `alray.runtime.stage.learning_rate.Moment`, and returns the rate. A function is called with the
    moment and these keys."""

    @property
    def ends_with_run(self) -> bool:
        return True  # a spec cannot tell


RATES = Kind("rates", LrScheduleSection, OwnRate, default="constant")
"""All schedules of the learning rate."""
LrSchedule = Annotated[LrScheduleSection, RATES]
