"""A bound that holds for every cut: the least step that any cut could have, and the cut that comes nearest to it.

A schedule says how long a step takes at least where a stage holds a given run of components (`Schedule.least`). Of all
cuts, a dynamic programme finds the one whose largest such time is smallest. What a message waits for on its way is left
out, so the step of this cut, and of the best one, may be longer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.costs import ComponentCosts
from alray.planning.prediction.durations import LEAST_SHARE
from alray.planning.prediction.memory import stage_ranges
from alray.planning.prediction.partition import Cut, Matrix, interval_sums, partition_auto, partition_intervals
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.schedule import Work, own_work

_SAME = 1e-9

Vector = NDArray[np.float64]


def least_step(setting: StepSetting) -> tuple[Cut, float]:
    """The cut whose bound is smallest, and this bound, in seconds: no cut has a shorter step, whatever its memory.

    Of several such cuts it is the one whose slowest stage has the least work.
    """
    schedule, parts = setting.scheduled, setting.micro_batches
    speeds = setting.stage_speed or (1.0,)
    works = [_work(setting, speed) for speed in speeds]
    fastest = works[speeds.index(max(speeds))]
    up, down = _messages(setting)
    computing = Work(*(float(each[0, -1]) for each in fastest))
    if setting.virtual_stages > 1:
        cut = partition_auto([component.train_s for component in setting.costs.components], setting.num_parts)
        total_s = parts * (computing.forward + computing.label + computing.backward) + computing.update
        nothing = Work(0.0, 0.0, 0.0, 0.0)
        return cut, max(total_s / setting.stages, float(schedule.least(nothing, nothing, computing, parts)))
    hops = setting.stages - 1
    overhead_s = hops * setting.costs.action_overhead_s if schedule.is_pipeline else 0.0  # the matrices have it once
    whole = computing._replace(
        forward=computing.forward + overhead_s + float(np.sort(up[1:-1])[:hops].sum()),
        backward=computing.backward + overhead_s + float(np.sort(down[1:-1])[:hops].sum()),
    )
    # [n + 1, 1]: of components 0 to i - 1, with the message to component i until it is to be unpacked.
    under = Work(*(each[:1].T for each in fastest))
    half_up, half_down = _busy(setting)
    below = under._replace(
        forward=under.forward + np.maximum(up - half_up, 0.0)[:, None],
        backward=under.backward + np.maximum(down - half_down, 0.0)[:, None],
    )
    least = []
    for work in works:
        own = work._replace(
            forward=work.forward + half_up[:, None] + half_up[None, :],
            backward=work.backward + half_down[:, None] + half_down[None, :],
        )
        least.append(schedule.least(below, own, whole, parts))
    cut = partition_intervals(least, setting.stages)
    runs = enumerate(stage_ranges(cut))
    least_s = float(max(least[stage % len(least)][own.start, own.stop] for stage, own in runs))
    # Many cuts may have this bound: all of them where one stage works at a time.
    alone = [
        np.where(bound <= least_s * (1.0 + _SAME), own_work(below, work, whole, parts), np.inf)
        for bound, work in zip(least, works, strict=True)
    ]
    return partition_intervals(alone, setting.stages), least_s


def _busy(setting: StepSetting) -> tuple[Vector, Vector]:
    """[n + 1]: seconds for which a stage is busy with a message up, and one down, where components 0 to i - 1 end."""
    costs = setting.costs
    half = costs.edge_s_per_byte / setting.micro_batches / 2
    size = len(costs.components) + 1
    up, down = np.zeros(size), np.zeros(size)
    up[1:-1] = [half * each.output_bytes for each in costs.components[:-1]]
    if setting.scheduled.is_pipeline:
        down[1:-1] = [half * each.gradient_message_bytes for each in costs.components[:-1]]
    return up, down


def _messages(setting: StepSetting) -> tuple[Vector, Vector]:
    """[n + 1]: seconds from a computation to the one that waits for its message, there; without labels that may come
    later."""
    costs = setting.costs
    up, down = (2 * each for each in _busy(setting))
    if not setting.scheduled.is_pipeline:
        up[1:-1] -= [costs.edge_s_per_byte * each.label_bytes for each in costs.components[:-1]]
    else:
        down[1:-1] += costs.edge_latency_s
    up[1:-1] += costs.edge_latency_s
    return up, down


def _work(setting: StepSetting, speed: float) -> Work:
    """The seconds of every run of components as a stage: matrices as `partition_intervals` takes them."""
    costs, pipeline = setting.costs, setting.scheduled.is_pipeline

    def of(whole: list[float], fixed: list[float]) -> Matrix:
        """Of a micro-batch, as `alray.planning.prediction.durations` has it."""
        if not pipeline:
            return interval_sums(whole) / speed
        share = 1.0 / setting.micro_batches
        # A fixed time may be below 0, where small micro-batches are faster.
        less = [min(own, 0.0) for own in fixed]
        more = [max(own, 0.0) for own in fixed]
        own = interval_sums(more) - interval_sums([-each for each in less])
        all_s = interval_sums(whole)
        seconds: Matrix = np.maximum(own + (all_s - own) * share, LEAST_SHARE * all_s * share) / speed
        return seconds + (costs.action_overhead_s if setting.stages > 1 else 0.0)

    def each(name: str) -> list[float]:
        return [float(getattr(component, name)) for component in costs.components]

    label = [0.0 if pipeline else component.label_s for component in costs.components]
    backward = [_backward_s(component, pipeline) for component in costs.components]
    update = interval_sums(each("update_s")) / speed
    if setting.replicas > 1:
        update = update + interval_sums(each("reduce_s"))
    splits = "I" in setting.scheduled.kinds(setting.stages)
    forward = of(each("forward_s"), each("forward_fixed_s"))
    forward[0, 1:] += costs.data_s / setting.micro_batches  # the first stage gets the mini-batch ready
    return Work(
        forward=forward,
        label=interval_sums(label) / speed,
        backward=of(backward, each("backward_fixed_s")) * (min(1.0, costs.split_backward) if splits else 1.0),
        update=update,
    )


def _backward_s(component: ComponentCosts, pipeline: bool) -> float:
    return component.backward_s if pipeline else component.backward_s - component.label_s
