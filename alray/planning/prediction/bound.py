"""A bound that holds for every cut: the least step that any cut could have, and cuts that come near to it.

A schedule of local losses says how long a step takes at least where a stage holds a given run of components
(`Schedule.least`). Of all cuts, a dynamic programme finds the one whose largest such time is smallest. What a message
waits for on its way is left out, so the step of this cut, and of the best one, may be longer.
`alray.planning.prediction.pipeline_bound` is about pipelines.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.partition import Cut, interval_sums, partition_intervals
from alray.planning.prediction.pipeline_bound import PipelineBound
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.schedule import LocalWork, own_work

_SAME = 1e-9

Vector = NDArray[np.float64]


def least_step(setting: StepSetting, cut: Cut, step_s: float) -> tuple[list[Cut], float]:
    """Cuts that may come near to the bound, and the bound, in seconds: no cut has a shorter step, whatever its memory.

    Args:
        cut: any cut.
        step_s: its step.
    """
    if setting.scheduled.is_pipeline:
        return PipelineBound(setting, cut).least(step_s)
    speeds = setting.stage_speed or (1.0,)
    works = {speed: _work(setting, speed) for speed in set(speeds)}
    fastest = works[max(speeds)]
    whole = LocalWork(*(float(each[0, -1]) for each in fastest))
    nothing = LocalWork(0.0, 0.0, 0.0, 0.0)
    least_of = setting.scheduled.least
    if setting.virtual_stages > 1:
        seconds = own_work(nothing, whole, whole)
        return [], max(seconds / setting.stages, float(least_of(nothing, nothing, whole)))
    busy = _busy(setting)
    up = _messages(setting)
    hops = setting.stages - 1
    whole = whole._replace(forward=whole.forward + float(np.sort(up[1:-1])[:hops].sum()))
    # [n + 1, 1]: of components 0 to i - 1, with the message to component i until it is to be unpacked.
    under = LocalWork(*(each[:1].T for each in fastest))
    below = under._replace(forward=under.forward + np.maximum(up - busy, 0.0)[:, None])
    least = {
        speed: least_of(below, work._replace(forward=work.forward + busy[:, None] + busy[None, :]), whole)
        for speed, work in works.items()
    }
    _, least_s = partition_intervals([least[speed] for speed in speeds], setting.stages)
    # Many cuts may have this bound: all of them where one stage works at a time. Of these, the one whose slowest stage
    # has the least work.
    alone = {
        speed: np.where(least[speed] <= least_s * (1.0 + _SAME), own_work(below, work, whole), np.inf)
        for speed, work in works.items()
    }
    return [partition_intervals([alone[speed] for speed in speeds], setting.stages)[0]], least_s


def _busy(setting: StepSetting) -> Vector:
    """[n + 1]: seconds for which a stage is busy with a message up where components 0 to i - 1 end."""
    costs = setting.costs
    return np.array([0.0, *(costs.up_s(each) / 2 for each in costs.components[:-1]), 0.0])


def _messages(setting: StepSetting) -> Vector:
    """[n + 1]: seconds from a forward to the one that waits for its message, there; without labels that may come
    later."""
    costs = setting.costs
    samples = [costs.up_s(each) - costs.edge_s_per_byte * each.label_bytes for each in costs.components[:-1]]
    return np.array([0.0, *(seconds + costs.edge_latency_s for seconds in samples), 0.0])


def _work(setting: StepSetting, speed: float) -> LocalWork:
    """The seconds of every run of components as a stage: matrices as `partition_intervals` takes them."""
    costs = setting.costs

    def each(name: str) -> list[float]:
        return [float(getattr(component, name)) for component in costs.components]

    update = interval_sums(each("update_s")) / speed
    if setting.replicas > 1:
        update = update + interval_sums(each("reduce_s"))
    forward = interval_sums(each("forward_s")) / speed
    forward[0, 1:] += costs.data_s  # the first stage gets the mini-batch ready
    return LocalWork(
        forward=forward,
        label=interval_sums(each("label_s")) / speed,
        backward=interval_sums([component.backward_s - component.label_s for component in costs.components]) / speed,
        update=update,
    )
