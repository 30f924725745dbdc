"""The best cut: the one that `pipeline.partition: auto` chooses."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from alray.errors import PlanError
from alray.plan.memory import memory_matrix, memory_of
from alray.plan.partition import Cut, Matrix, check_size, interval_sums, partition_auto, partition_intervals
from alray.plan.search import MOST_CUTS, every_cut, search_partition
from alray.plan.setting import Setting
from alray.schedules.table import SCHEDULES

if TYPE_CHECKING:
    from alray.schedules.schedule import CutCost


def best_partition(setting: Setting) -> Cut:
    """The cut with the shortest step that keeps within the memory limits. Messages between stages are counted.

    A schedule with a `cut_cost` gets the cut with the smallest bound, by a dynamic programme; ties are broken as in
    `alray.plan.partition`. The other schedules, and those with a barrier on devices of different speeds, get the best
    cut that a simulation finds, see `alray.plan.search`.

    Raises PlanError where there are more stages than components, or where no cut fits. The error then names the stage
    that is over its limit in the cut that comes nearest to fitting.
    """
    schedule = SCHEDULES[setting.schedule]
    check_parts(setting)
    start = _fitting(setting) if setting.memory_limits else None
    if setting.num_parts == 1:
        return (len(setting.costs.components),)
    if schedule.cut_cost is None or (schedule.has_barrier(setting.stages) and not setting.even_speed):
        return search_partition(setting, start)
    fits = None
    if setting.memory_limits:
        fits = [memory_matrix(setting, stage) <= limit for stage, limit in enumerate(setting.memory_limits)]
    return partition_intervals(_stage_costs(setting, schedule.cut_cost), setting.stages, fits=fits)


def check_parts(setting: Setting) -> None:
    """Raises PlanError where there are fewer components than stages or virtual stages."""
    components = len(setting.costs.components)
    if setting.virtual_stages > 1 and setting.num_parts > components:
        raise PlanError(
            f"{setting.stages} stages with {setting.virtual_stages} virtual stages each, "
            f"but the model has {components} components",
            mend=f"use at most {components} virtual stages in all, or a model with more components",
            key="pipeline.stages",
        )
    check_size(components, setting.stages)


def _stage_costs(setting: Setting, cut_cost: CutCost) -> list[Matrix]:
    """What each run of components costs as a stage, with half of each message at its ends; one matrix per speed."""
    costs = setting.costs
    forward = interval_sums([component.forward_s for component in costs.components])
    backward = interval_sums([component.backward_s + component.update_s for component in costs.components])
    # The sender spends half of a message's time, the receiver the other half.
    half = np.array([0.0, *(component.output_bytes * costs.edge_s_per_byte / 2 for component in costs.components)])
    half[-1] = 0.0
    computing = cut_cost(forward, backward)
    speeds: Sequence[float] = setting.stage_speed or (1.0,)
    return [computing / speed + half[:, None] + half[None, :] for speed in speeds]


def nearest_to_fitting(setting: Setting) -> Cut:
    """A cut within the memory limits; where there is none, a cut that is not far over them.

    Without virtual stages it is the cut whose fullest stage is least full, found by a dynamic programme. With virtual
    stages all cuts are tried; if there are too many, it is the cut that spreads parameters and activations evenly.
    """
    size, parts = len(setting.costs.components), setting.num_parts
    if setting.virtual_stages == 1:
        filled = [memory_matrix(setting, stage) / limit for stage, limit in enumerate(setting.memory_limits)]
        return partition_intervals(filled, parts)
    if comb(size - 1, parts - 1) <= MOST_CUTS:
        return min(every_cut(size, parts), key=lambda each: fullest_stage(setting, each))
    return partition_auto(
        [
            float(component.parameter_bytes + component.optimizer_bytes + component.activation_bytes)
            for component in setting.costs.components
        ],
        parts,
    )


def _fitting(setting: Setting) -> Cut:
    """A cut within the memory limits; raises PlanError where there is none."""
    size, parts = len(setting.costs.components), setting.num_parts
    cut = nearest_to_fitting(setting)
    over, stage = fullest_stage(setting, cut)
    if over > 1.0:
        need, limit = memory_of(setting, cut, stage).total_bytes, setting.memory_limits[stage]
        raise PlanError(
            f"no cut of {size} components into {parts} {'virtual ' if setting.virtual_stages > 1 else ''}stages fits "
            f"the memory of the devices: with {list(cut)}, which comes nearest, stage {stage} needs {need} bytes "
            f"and has {limit}",
            mend="use more stages, a smaller mini-batch or larger devices, or set resources.memory_bytes where there "
            "is more memory than it seems",
            key="pipeline.partition",
        )
    return cut


def fullest_stage(setting: Setting, cut: Cut) -> tuple[float, int]:
    """The fullest stage: its memory as a share of its limit, and its number."""
    return max(
        (memory_of(setting, cut, stage).total_bytes / limit, stage) for stage, limit in enumerate(setting.memory_limits)
    )
