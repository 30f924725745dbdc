"""Whether a setting fits the memory of its devices, with its best cut, and how much each of them has left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from alray.planning.prediction.best import best_cut, check_parts, fullest_stage, nearest_to_fitting
from alray.planning.prediction.make import step_range
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.predict import predict_step
from alray.planning.prediction.search import SAME, near_cut
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES


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
    left_bytes: tuple[int, ...]  # of each stage's device; below 0 where it is too small
    predicted_step_time_s: float
    predicted_bubble: float | None
    predicted_step_range_s: tuple[float, float] | None = None  # as of a `Plan`
    gain: float | None = None  # `BestCut.gain_of` this step; None where no cut fits
    least_s: float | None = None  # no cut has a shorter step; None where no cut fits
    searched: bool = False  # whether the best cut was searched

    @property
    def fits(self) -> bool:
        return min(self.left_bytes) >= 0

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sorts what fits before what does not: the former by step time, the latter by what is missing."""
        if self.fits:  # steps are rounded, because equal steps may differ in their last digits
            return False, float(f"{self.predicted_step_time_s:.10g}"), self.stages, self.micro_batches
        return True, -min(self.left_bytes), self.stages, self.micro_batches

    def may_beat(self, step_s: float) -> bool:
        """Whether a search of the best cut could make the step shorter than this."""
        return not self.searched and self.least_s is not None and self.least_s < step_s * (1.0 - SAME)

    def as_json(self) -> dict[str, Any]:
        return {"fits": self.fits, **asdict(self)}


def fit_of(setting: StepSetting, *, search: bool = True) -> Fit:
    """How a setting fits.

    Args:
        setting: with a memory limit for each stage.
        search: whether the best cut is searched; otherwise a cut near to it is taken that is found sooner.

    Raises:
        PlanError: where it has more parts than there are components.
    """
    check_parts(setting)
    found = None if search or setting.num_parts == 1 else near_cut(setting)
    nearest = nearest_to_fitting(setting) if found is None else found.cut
    searched = found is None and fullest_stage(setting, nearest)[0] <= 1.0
    if searched:
        found = best_cut(setting)
    cut = nearest if found is None else found.cut
    needed = tuple(memory_of(setting, cut, stage).total_bytes for stage in range(setting.stages))
    prediction = predict_step(setting, cut)
    return Fit(
        schedule=SCHEDULES[setting.schedule].name,
        stages=setting.stages,
        micro_batches=setting.micro_batches,
        virtual_stages=setting.virtual_stages,
        partition=tuple(cut),
        memory_bytes=needed,
        left_bytes=tuple(limit - need for limit, need in zip(setting.memory_limits, needed, strict=True)),
        predicted_step_time_s=prediction.step_time_s,
        predicted_bubble=prediction.bubble,
        predicted_step_range_s=step_range(setting, cut),
        gain=None if found is None else found.gain_of(prediction.step_time_s),
        least_s=None if found is None else found.least_s,
        searched=searched,
    )


def with_best_cuts(found: Sequence[tuple[StepSetting, Fit]], doing: Callable[[int, int], None]) -> list[Fit]:
    """How settings fit, each that could be the fastest with its best cut. The others stay as they are: by their
    `least_s` no cut makes them faster than the fastest one.

    Args:
        found: settings, each as it fits without a search.
        doing: is called before a search with its number, and with how many there are at most.
    """
    found = sorted(found, key=lambda each: each[1].rank)
    fits = [fit for _, fit in found]
    fastest_s = min((fit.predicted_step_time_s for fit in fits if fit.fits), default=0.0)
    candidates = [index for index, fit in enumerate(fits) if fit.may_beat(fastest_s)]
    for number, index in enumerate(candidates):
        if fits[index].may_beat(fastest_s):
            doing(number + 1, len(candidates))
            # A search need not find what was found without it.
            fits[index] = min(fit_of(found[index][0]), fits[index], key=lambda fit: fit.rank)
            fastest_s = min(fastest_s, fits[index].predicted_step_time_s)
    return fits
