"""The best cut: the one that `pipeline.partition: auto` chooses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache, partial
from math import comb

import numpy as np
from numpy.typing import NDArray

from alray.core.errors import PlanError
from alray.planning.prediction.durations import copies_s
from alray.planning.prediction.memory import memory_of, run_bytes, stage_ranges
from alray.planning.prediction.partition import (
    Cut,
    Matrix,
    Places,
    StageCost,
    check_size,
    longest_run,
    partition_auto,
    partition_uniform,
    run_sums,
    short_runs,
    with_cheapest_largest,
)
from alray.planning.prediction.search import SAME, BestCut, every_cut, search_cut, step_of
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import SCHEDULES

_MOST_WEIGHED = 4_000
"""The most cuts whose memory is computed, one after another, to find one that fits."""


@lru_cache(maxsize=8)
def best_cut(setting: StepSetting) -> BestCut:
    """The cut with the shortest step that keeps within the memory limits. Messages between stages are counted.

    Where a step takes as long as its slowest stage, a dynamic programme finds this cut; ties are broken as in
    `alray.planning.prediction.partition`. The cuts of the other schedules are simulated, see
    `alray.planning.prediction.search`. So are those of a step that takes longer than its slowest stage because messages
    are slow to arrive.

    Raises PlanError where there are more stages than components, or where no cut fits. The error then names the stage
    that is over its limit in the cut that comes nearest to fitting.
    """
    found, copied_s = _searched(setting), copies_s(setting)
    return replace(found, step_s=max(found.step_s, copied_s), least_s=max(found.least_s, copied_s))


def _searched(setting: StepSetting) -> BestCut:
    """The same, where copies of the last component take no time on a link."""
    check_parts(setting)
    start = _fitting(setting) if setting.memory_limits else None
    if setting.num_parts == 1:
        cut = (len(setting.costs.components),)
        step_s = step_of(setting, cut)
        return BestCut(cut, step_s, step_s)
    if setting.virtual_stages == 1 and (setting.memory_limits or SCHEDULES[setting.schedule].slowest_stage):
        start, slowest_s = _with_fastest_slowest_stage(setting, start)
        if SCHEDULES[setting.schedule].slowest_stage and step_of(setting, start) <= slowest_s * (1.0 + SAME):
            return BestCut(start, slowest_s, slowest_s)
    if start is None:
        start = partition_auto([component.train_s for component in setting.costs.components], setting.num_parts)
    return search_cut(setting, start)


def check_parts(setting: StepSetting) -> None:
    """Raises PlanError where there are fewer components than stages or virtual stages."""
    check_size(len(setting.costs.components), setting.stages, setting.virtual_stages)


def _with_fastest_slowest_stage(setting: StepSetting, fitting: Cut | None) -> tuple[Cut, float]:
    """The cut whose slowest stage is fastest, messages included, within the memory limits; and that stage's seconds.

    Args:
        fitting: a cut within the memory limits; None: there are no limits.
    """
    size, stages = len(setting.costs.components), setting.stages
    seconds, shares = _run_seconds(setting), _run_shares(setting)
    speeds = setting.stage_speed or (1.0,) * stages
    known = enumerate(stage_ranges(fitting or partition_uniform(size, stages)))
    slowest_s = max(float(seconds(stage, own.start, own.stop)) for stage, own in known)

    @cache
    def seconds_at(speed: float) -> Matrix:
        """Of a stage of this speed, for runs that no slower stage than the slowest one of a known cut holds."""
        stage = speeds.index(speed)
        longest = longest_run(partial(seconds, stage, sends=False), slowest_s, size, size + 1 - stages)
        return short_runs(partial(seconds, stage), size, longest)

    def is_full(stage: int) -> NDArray[np.bool_]:
        most = seconds_at(speeds[stage]).shape[1]
        longest = longest_run(partial(shares, stage, sends=False), 1.0 + SAME, size, most)  # sums are rounded
        return short_runs(partial(shares, stage), size, longest) > 1.0

    full = [is_full(stage) for stage in range(stages)] if setting.memory_limits else None

    def of_stage(stage: int) -> Matrix:
        own = seconds_at(speeds[stage])
        return own if full is None else np.where(full[stage], np.inf, own[:, : full[stage].shape[1]])

    return with_cheapest_largest(of_stage, size, stages)


def _run_seconds(setting: StepSetting) -> StageCost:
    """The time of runs of components as a stage, with half of each message at their ends."""
    costs = setting.costs
    computing = run_sums([component.train_s for component in costs.components])
    reducing = run_sums([component.reduce_s * (setting.replicas > 1) for component in costs.components])
    # The sender spends half of a message's time, the receiver the other half.
    half = np.array([0.0, *(costs.up_s(component) / 2 for component in costs.components)])
    half[-1] = 0.0

    def of(stage: int, first: Places, ends: Places, *, sends: bool = True) -> Matrix:
        speed = setting.stage_speed[stage] if setting.stage_speed else 1.0
        messages = half[first] + sends * half[ends]
        other: Matrix = messages + reducing(first, ends) + (first == 0) * costs.data_s
        return computing(first, ends) / speed + other

    return of


def _run_shares(setting: StepSetting) -> StageCost:
    """The memory of runs of components as a stage, as a share of its limit."""
    nbytes = run_bytes(setting)

    def of(stage: int, first: Places, ends: Places, *, sends: bool = True) -> Matrix:
        return nbytes(stage, first, ends, sends=sends) / setting.memory_limits[stage]

    return of


@lru_cache(maxsize=8)
def nearest_to_fitting(setting: StepSetting) -> Cut:
    """A cut within the memory limits; where there is none, a cut that is not far over them.

    Without virtual stages it is the cut whose fullest stage is least full, found by a dynamic programme. With virtual
    stages all cuts are tried; if there are too many, it is the cut that spreads parameters and activations evenly.
    """
    size, parts = len(setting.costs.components), setting.num_parts
    if setting.virtual_stages == 1:
        return _least_full(setting)
    if comb(size - 1, parts - 1) <= _MOST_WEIGHED:
        return min(every_cut(size, parts), key=lambda each: fullest_stage(setting, each))
    return partition_auto(
        [
            float(component.parameter_bytes + component.optimizer_bytes + component.activation_bytes)
            for component in setting.costs.components
        ],
        parts,
    )


def _least_full(setting: StepSetting) -> Cut:
    """The cut whose fullest stage is least full, without virtual stages."""
    size, parts = len(setting.costs.components), setting.num_parts
    most = fullest_stage(setting, partition_uniform(size, parts))[0] * (1.0 + SAME)  # sums are rounded
    shares = _run_shares(setting)

    def of_stage(stage: int) -> Matrix:
        longest = longest_run(partial(shares, stage, sends=False), most, size, size + 1 - parts)
        return short_runs(partial(shares, stage), size, longest)

    return with_cheapest_largest(of_stage, size, parts)[0]


def _fitting(setting: StepSetting) -> Cut:
    """A cut within the memory limits; raises PlanError where there is none."""
    size, parts = len(setting.costs.components), setting.num_parts
    cut = nearest_to_fitting(setting)
    over, stage = fullest_stage(setting, cut)
    if over > 1.0:
        need, limit = memory_of(setting, cut, stage).total_bytes, setting.memory_limits[stage]
        raise PlanError(
            f"no cut of {size} components into {parts} {'virtual ' if setting.virtual_stages > 1 else ''}stages fits "
            f"the memory of the devices: with {list(cut)}, which comes nearest, stage {stage} needs {need:,} bytes "
            f"and has {limit:,}",
            hint="use more stages, a smaller mini-batch or larger devices, or set resources.memory_bytes where there "
            "is more memory than it seems",
            key="pipeline.partition",
        )
    return cut


def fullest_stage(setting: StepSetting, cut: Cut) -> tuple[float, int]:
    """The fullest stage: its memory as a share of its limit, and its number."""
    return max(
        (memory_of(setting, cut, stage).total_bytes / limit, stage) for stage, limit in enumerate(setting.memory_limits)
    )
