"""How a setting fits the memory of its devices, and how fast it is: what ways to train are compared by.

Cuts are searched in two passes: every way gets a cut that is near to the best one, and those that come near to the
fastest get the search of `partition: auto`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from alray.core.counting import counted
from alray.planning.prediction.best import best_cut, fullest_stage, near_cut, nearest_to_fitting
from alray.planning.prediction.make import step_range
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.predict import predict_step
from alray.planning.prediction.setting import StepSetting

NEAR = 1.1
"""Ways that are slower than the fastest one by less get the search for the best cut; the first pass is off by less,
but for a few."""


@dataclass(frozen=True)
class Refused:
    """A schedule that cannot run on so many stages, and why.

    Attributes:
        parts: the micro-batches that it cannot run in, in words; "": it cannot run at all.
    """

    schedule: str
    stages: int
    reason: str
    parts: str = ""

    def __str__(self) -> str:
        in_parts = f" in {self.parts}" if self.parts else ""
        return f"{self.schedule} on {counted(self.stages, 'stage')} cannot run{in_parts}: {self.reason}"


@dataclass(frozen=True)
class Fit:
    """A schedule on so many stages, with its best cut, or one that is near to it; where no cut fits, with the cut that
    comes nearest."""

    schedule: str
    stages: int
    micro_batches: int
    virtual_stages: int
    partition: tuple[int, ...]
    memory_bytes: tuple[int, ...]  # that each stage needs at its peak, by the plan
    left_bytes: tuple[int, ...]  # of each stage's device; below 0 where it is too small; (): it is not known
    predicted_step_time_s: float
    predicted_bubble: float | None
    predicted_step_range_s: tuple[float, float] | None = None  # as of a `Plan`
    searched: bool = False  # whether the best cut was searched
    gradient_delay: int = 0  # as of a `Schedule`: above 0 it trains other weights
    setting: StepSetting = field(kw_only=True, compare=False, repr=False)  # that fits so

    @property
    def fits(self) -> bool:
        return min(self.left_bytes, default=0) >= 0

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts what fits before what does not: the former by step time, the latter by what is missing."""
        if self.fits:  # steps are rounded, because equal steps may differ in their last digits
            return False, float(f"{self.predicted_step_time_s:.10g}"), self.stages, self.micro_batches
        return True, -min(self.left_bytes), self.stages, self.micro_batches

    def as_json(self) -> dict[str, Any]:
        return {"fits": self.fits, **{name: value for name, value in vars(self).items() if name != "setting"}}


def fit_of(setting: StepSetting, *, search: bool = True) -> Fit:
    """How a setting fits.

    Args:
        search: whether the best cut is searched; otherwise a cut near to it is taken that is found sooner.
    """
    fits = not setting.memory_limits or fullest_stage(setting, nearest_to_fitting(setting)).fits
    searched = fits and (search or setting.num_parts == 1)
    cut = best_cut(setting).cut if searched else near_cut(setting)
    needed = tuple(memory_of(setting, cut, stage).total_bytes for stage in range(setting.stages))
    prediction = predict_step(setting, cut)
    return Fit(
        schedule=setting.scheduled.name,
        stages=setting.stages,
        micro_batches=setting.micro_batches,
        virtual_stages=setting.virtual_stages,
        partition=tuple(cut),
        memory_bytes=needed,
        left_bytes=tuple(limit - need for limit, need in zip(setting.memory_limits, needed, strict=False)),
        predicted_step_time_s=prediction.step_time_s,
        predicted_bubble=prediction.bubble,
        predicted_step_range_s=step_range(setting, cut),
        searched=searched,
        gradient_delay=setting.scheduled.gradient_delay,
        setting=setting,
    )


def with_best_cuts(found: Sequence[Fit], doing: Callable[[int, int], None]) -> list[Fit]:
    """How settings fit, each that comes near to the fastest with its best cut. The others stay as they are.

    Args:
        found: how each fits without a search.
        doing: is called before a search with its number, and with how many there are at most.
    """
    fits = sorted(found, key=lambda fit: fit.rank)
    near_s = NEAR * min((fit.predicted_step_time_s for fit in fits if fit.fits), default=0.0)
    candidates = [index for index, fit in enumerate(fits) if fit.fits and fit.predicted_step_time_s <= near_s]
    for number, index in enumerate(candidates):
        doing(number + 1, len(candidates))
        fits[index] = with_best_cut(fits[index])
    return fits


def with_best_cut(near: Fit) -> Fit:
    """How a setting fits with its best cut.

    Args:
        near: how it fits without a search, which need not find what was found without it.
    """
    return near if near.searched else min(fit_of(near.setting), near, key=lambda fit: fit.rank)
