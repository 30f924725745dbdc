"""The best cut: the one `pipeline.partition: auto` takes."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from alray.errors import PlanError
from alray.plan.memory import memory_matrix, memory_of
from alray.plan.partition import Matrix, check_size, interval_sums, partition_auto, partition_intervals
from alray.plan.search import MOST_CUTS, every_cut, search_partition
from alray.plan.setting import Setting

Cut = tuple[int, ...]


def best_partition(setting: Setting) -> Cut:
    """The cut with the shortest step, messages between stages counted, within the memory limits; ties as in
    `alray.plan.partition`.

    Schedules of local losses: the smallest bound, by dynamic programme. (On devices of one speed every cut of
    `sequential` has the same bound; it gets the one that suits `streamed`.) Pipelines, and schedules with a barrier on
    devices that differ: by simulation, see `alray.plan.search`.

    Raises PlanError where there are more stages than components, or where no cut fits: it names the stage that is
    over its limit in the cut that comes nearest to fitting.
    """
    check_parts(setting)
    start = _fitting(setting) if setting.memory_limits else None
    if setting.num_parts == 1:
        return (len(setting.costs.components),)
    if setting.is_pipeline or not (setting.even_speed or setting.schedule == "streamed"):
        return search_partition(setting, start)
    fits = None
    if setting.memory_limits:
        fits = [memory_matrix(setting, stage) <= limit for stage, limit in enumerate(setting.memory_limits)]
    return partition_intervals(_stage_costs(setting), setting.stages, fits=fits)


def check_parts(setting: Setting) -> None:
    """Raises PlanError unless every stage, and every virtual stage, can have a component."""
    components = len(setting.costs.components)
    if setting.virtual_stages > 1 and setting.num_parts > components:
        raise PlanError(
            f"{setting.stages} stages with {setting.virtual_stages} virtual stages each, "
            f"but the model has {components} components",
            mend=f"use at most {components} virtual stages in all, or a model with more components",
            key="pipeline.stages",
        )
    check_size(components, setting.stages)


def _stage_costs(setting: Setting) -> list[Matrix]:
    """For each stage, the part of the bound that hangs on its own components."""
    costs = setting.costs
    forward = interval_sums([component.forward_s for component in costs.components])
    backward = interval_sums([component.backward_s + component.update_s for component in costs.components])
    # Half of a message is spent by the stage that sends it, half by the one that receives it.
    half = np.array([0.0, *(component.output_bytes * costs.edge_s_per_byte / 2 for component in costs.components)])
    half[-1] = 0.0
    if setting.schedule == "overlapped":
        computing = forward[0][None, :] + backward
    elif setting.schedule == "parallel_backward":
        computing = backward
    else:
        computing = forward + backward
    speeds: Sequence[float] = setting.stage_speed or (1.0,)
    return [computing / speed + half[:, None] + half[None, :] for speed in speeds]


def nearest_to_fitting(setting: Setting) -> Cut:
    """A cut within the memory limits, or where there is none one that is not far over them.

    Without virtual stages the cut whose fullest stage is the least full, by dynamic programme. With them the same by
    trying, where there are few enough cuts; otherwise the one that spreads parameters and activations evenly.
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
    """How full the fullest stage is, as a share of its limit, and which one that is."""
    return max(
        (memory_of(setting, cut, stage).total_bytes / limit, stage) for stage, limit in enumerate(setting.memory_limits)
    )
