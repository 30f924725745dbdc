"""The best cut: the one that `pipeline.partition: auto` chooses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache, partial
from math import comb
from typing import NamedTuple

import numpy as np

from alray.core.errors import PlanError
from alray.planning.prediction.memory import memory_of, run_bytes, stage_ranges
from alray.planning.prediction.partition import (
    Cut,
    Matrix,
    Places,
    partition_auto,
    partition_uniform,
    runs_within,
    with_cheapest_largest,
)
from alray.planning.prediction.search import SAME, BestCut, every_cut, fits, search_cut, step_of
from alray.planning.prediction.seconds import RunSeconds, copies_s
from alray.planning.prediction.setting import StepSetting

_MOST_WEIGHED = 4_000
"""The most cuts whose memory is computed, one after another, to find one that fits."""

_MORE_EVEN = 0.02
"""By which share the slowest stage of a cut from which a search begins may be slower, for stages that have more even
work."""


@lru_cache(maxsize=8)
def best_cut(setting: StepSetting) -> BestCut:
    """The cut with the shortest step that keeps within the memory limits. Messages between stages are counted.

    No step is shorter than its slowest stage is busy. A dynamic programme finds the cut whose slowest stage is fastest;
    ties are broken as in `alray.planning.prediction.partition`. If its step takes no longer, it is the best cut.
    Otherwise cuts are simulated, see `alray.planning.prediction.search`.

    Raises PlanError where no cut fits. The error names the stage that is over its limit in the cut that comes nearest
    to fitting.
    """
    found, copied_s = _searched(setting), copies_s(setting)
    return replace(found, step_s=max(found.step_s, copied_s), is_best=found.is_best or found.step_s <= copied_s)


def _searched(setting: StepSetting) -> BestCut:
    """The same, where copies of the last component take no time on a link."""
    fitting = nearest_to_fitting(setting) if setting.memory_limits else None
    if fitting is not None and not (fullest := fullest_stage(setting, fitting)).fits:
        raise PlanError(
            f"no cut of {len(setting.costs.components)} components into {setting.num_parts} "
            f"{'virtual ' if setting.virtual_stages > 1 else ''}stages fits the memory of the devices: with "
            f"{list(fitting)}, which comes nearest, stage {fullest.stage} needs {fullest.need:,} bytes and has "
            f"{fullest.limit:,}",
            hint="use more stages, a smaller mini-batch or larger devices, or set resources.memory_bytes where there "
            "is more memory than it seems",
            key="pipeline.partition",
        )
    if setting.stages == 1 or setting.virtual_stages > 1:
        return search_cut(setting, [_even(setting) if fitting is None else fitting])
    starts, slowest_s = _starts(setting, fitting)
    if (step_s := step_of(setting, starts[0])) <= slowest_s * (1.0 + SAME):
        return BestCut(starts[0], step_s, is_best=True)
    return search_cut(setting, starts)


def near_cut(setting: StepSetting) -> Cut:
    """A cut whose step is near to that of the best one, without a search; where none was found within the memory
    limits, the one that comes nearest to fitting."""
    cuts = [_even(setting)]
    nearest = nearest_to_fitting(setting) if setting.memory_limits else None
    if nearest is not None and (setting.virtual_stages > 1 or not fits(setting, nearest)):
        cuts.append(nearest)
    elif setting.num_parts > 1 and setting.virtual_stages == 1:
        cuts += _starts(setting, nearest)[0]
    fitting = [cut for cut in dict.fromkeys(cuts) if fits(setting, cut)]
    return min(fitting or cuts[-1:], key=partial(step_of, setting))


def _even(setting: StepSetting) -> Cut:
    return partition_auto([component.train_s for component in setting.costs.components], setting.num_parts)


def _starts(setting: StepSetting, fitting: Cut | None) -> tuple[list[Cut], float]:
    """Cuts within the memory limits from which a search begins, without virtual stages: that whose slowest stage is
    fastest, with these seconds; and where stages drain after each mini-batch, that which is soonest done if each stage
    is busy from the arrival of the first micro-batch.

    Args:
        fitting: a cut within the memory limits; None: there are no limits.
    """
    size, stages = len(setting.costs.components), setting.stages
    run_seconds = RunSeconds(setting)
    seconds = run_seconds.of_stage
    known = enumerate(stage_ranges(fitting or partition_uniform(size, stages)))
    slowest_s = max(float(seconds(stage, own.start, own.stop)) for stage, own in known)

    @cache
    def seconds_of(stage: int) -> Matrix:
        """For runs that no slower stage than the slowest one of a known cut holds."""
        least = partial(seconds, stage, sends=False)
        return runs_within(partial(seconds, stage), least, slowest_s, size, size + 1 - stages)

    full = None
    if setting.memory_limits:
        longest = [seconds_of(first).shape[1] for first in run_seconds.alike]
        shares = (_shares_within(setting, stage, 1.0 + SAME, most) for stage, most in enumerate(longest))
        full = [each > 1.0 for each in shares]  # sums are rounded

    def of_stage(stage: int) -> Matrix:
        own = seconds_of(run_seconds.alike[stage])
        return own if full is None else np.where(full[stage], np.inf, own[:, : full[stage].shape[1]])

    fastest, slowest_s = with_cheapest_largest(of_stage, size, stages)
    starts = [fastest, with_cheapest_largest(of_stage, size, stages, more=_MORE_EVEN)[0]]
    if setting.scheduled.gradient_delay or not setting.scheduled.drains(setting.stages):
        return starts, slowest_s
    arrival = run_seconds.arrival_s[:-1, None]

    def with_arrival(stage: int) -> Matrix:
        return of_stage(stage) + arrival

    starts += [with_cheapest_largest(with_arrival, size, stages, more=more)[0] for more in (0.0, _MORE_EVEN)]
    return list(dict.fromkeys(starts)), slowest_s


def _shares_within(setting: StepSetting, stage: int, most: float, longest: int) -> Matrix:
    """The memory of runs of components as a stage, as a share of its limit (`runs_within`)."""

    def share(own: StepSetting, first: Places, ends: Places) -> Matrix:
        return run_bytes(own, stage, first, ends) / setting.memory_limits[stage]

    size = len(setting.costs.components)
    return runs_within(partial(share, setting), partial(share, _silent(setting)), most, size, longest)


@lru_cache(maxsize=2)
def _silent(setting: StepSetting) -> StepSetting:
    """The same where components pass on nothing: then the memory of a run does not fall where it gets longer."""
    components = tuple(replace(each, output_bytes=0) for each in setting.costs.components)
    return replace(setting, costs=replace(setting.costs, components=components))


@lru_cache(maxsize=8)
def nearest_to_fitting(setting: StepSetting) -> Cut:
    """A cut within the memory limits; where there is none, a cut that is not far over them.

    Without virtual stages it is the cut whose fullest stage is least full, found by a dynamic programme. With virtual
    stages all cuts are tried; if there are too many, it is the cut that spreads parameters and activations evenly.
    """
    size, parts = len(setting.costs.components), setting.num_parts
    if setting.virtual_stages == 1:
        most = fullest_stage(setting, partition_uniform(size, parts)).share * (1.0 + SAME)  # sums are rounded
        return with_cheapest_largest(lambda stage: _shares_within(setting, stage, most, size + 1 - parts), size, parts)[
            0
        ]
    if comb(size - 1, parts - 1) <= _MOST_WEIGHED:
        return min(every_cut(size, parts), key=lambda each: fullest_stage(setting, each)[:2])
    return partition_auto(
        [
            float(component.parameter_bytes + component.optimizer_bytes + component.activation_bytes)
            for component in setting.costs.components
        ],
        parts,
    )


class Fullest(NamedTuple):
    """The fullest stage of a cut.

    Attributes:
        share: its memory as a share of its limit.
        need, limit: bytes.
    """

    share: float
    stage: int
    need: int
    limit: int

    @property
    def fits(self) -> bool:
        return self.share <= 1.0


def fullest_stage(setting: StepSetting, cut: Cut) -> Fullest:
    """The fullest stage, in a setting with memory limits."""
    needed = (memory_of(setting, cut, stage).total_bytes for stage in range(setting.stages))
    each = zip(needed, setting.memory_limits, strict=True)
    return max(Fullest(need / limit, stage, need, limit) for stage, (need, limit) in enumerate(each))
