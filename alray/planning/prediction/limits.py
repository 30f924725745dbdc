"""One sentence for the reader of a plan that says what limits the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from alray.core.counting import counted
from alray.planning.prediction.best import best_cut, fullest_stage, nearest_to_fitting
from alray.planning.prediction.predict import StepPrediction, predict_step
from alray.planning.prediction.seconds import RunSeconds, computing_s, copies_links
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.durations import Durations

_WORTH_TELLING = 1.01  # a measurement cannot show a gain of less than 1 %
_EQUAL = 1e-6  # sums are rounded


def limited_by(setting: StepSetting, partition: Sequence[int], prediction: StepPrediction) -> str:
    """One sentence: what the step time depends on, and a better cut where there is one."""
    stages = setting.stages
    costs = setting.costs
    cores = setting.cores
    if prediction.shared and cores is not None:
        threads = stages * setting.replicas * costs.threads
        return (
            f"processors are shared: {counted(threads, 'thread')} of {counted(stages * setting.replicas, 'stage')} "
            f"on {counted(cores, 'processor')}"
        )
    if setting.in_turns:
        return "the stages take turns in one process: a step takes as long as the work of all of them"
    step_s, even_s = prediction.step_time_s, prediction.even_step_s
    durations = RunSeconds(setting).of_cuts(partition)
    more = _averages(setting, durations, step_s)
    if stages == 1:
        return f"one stage does all the work{more}"
    if step_s > _WORTH_TELLING * even_s:
        more += f"; waiting for uneven computations adds {_percent(step_s / even_s - 1.0)}"
    other_cuts = _other_cuts(setting, partition, prediction.even_step_s)
    return f"{_reason(setting, durations, prediction)}{more}; {other_cuts}"


def _averages(setting: StepSetting, durations: Durations, step_s: float) -> str:
    """The share of the step in which a stage averages over the replicas; nothing where it is less than 1 %."""
    longest_s = max(setting.by_stage(durations.averages_s))
    if longest_s <= (_WORTH_TELLING - 1.0) * step_s:
        return ""
    return f"; averages over the replicas take {_percent(longest_s / step_s)} of a step"


def _other_cuts(setting: StepSetting, partition: Sequence[int], step_time_s: float) -> str:
    """How much faster another cut is.

    Stages that share processors slow each other down, and only the chosen cut is predicted with that.
    """
    if setting.memory_limits and not fullest_stage(setting, nearest_to_fitting(setting)).fits:
        return "no cut fits the memory of the devices"
    best = best_cut(setting)
    if best.cut != tuple(partition):
        better_s = predict_step(setting, best.cut).even_step_s
        if better_s > 0 and step_time_s / better_s >= _WORTH_TELLING:
            known = "best" if best.is_best else "a better"
            return f"{known} cut {list(best.cut)} gives {step_time_s / better_s:.2f}x"
    proven = best.is_best and step_time_s <= best.step_s * (1.0 + _EQUAL)
    return "no other cut is better" if proven else "no better cut was found"


def _reason(setting: StepSetting, durations: Durations, prediction: StepPrediction) -> str:
    """The slowest stage and how long stages idle, or the link that takes longer than any stage."""
    computing = computing_s(setting, durations)
    if (busy := _busiest_link(setting, durations)) is not None and busy[0] > max(computing):
        return f"the link between stages {busy[1]} and {busy[2]} takes {_milliseconds(busy[0])} for a mini-batch"
    parts = f" with {counted(setting.micro_batches, 'micro-batch')}" if setting.micro_batches > 1 else ""
    idle = f"the stages idle for {_percent(prediction.bubble or 0.0)} of the step{parts}"
    return f"{_slowest(computing)}, and {idle}"


def _busiest_link(setting: StepSetting, durations: Durations) -> tuple[float, int, int] | None:
    """Seconds for which the busiest link between nodes is busy with one mini-batch, in one direction, and the stages at
    its ends."""
    up_s = setting.micro_batches * np.asarray(durations.up_link_s)
    if len(durations.labels_link_s):
        up_s = up_s + np.asarray(durations.labels_link_s)
    down_s = setting.micro_batches * np.asarray(durations.down_link_s)
    busy = defaultdict[tuple[int, int], float](float)
    for (lower, upper), up, down in zip(pairwise(setting.holders), up_s, down_s, strict=False):
        busy[lower, upper] += up
        busy[upper, lower] += down
    for stage, copied_s in copies_links(setting).items():
        busy[setting.stages - 1, stage] += copied_s
    return max(((seconds, min(way), max(way)) for way, seconds in busy.items()), default=None)


def _percent(share: float) -> str:
    """To two digits, in whole ones from 100 on."""
    percent = 100 * share
    return f"{percent:,.0f} %" if percent >= 99.5 else f"{percent:.2g} %"


def _milliseconds(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    return f"{milliseconds:,.0f} ms" if milliseconds >= 1000 else f"{milliseconds:.3g} ms"


def _slowest(seconds: Sequence[float]) -> str:
    mean = sum(seconds) / len(seconds)
    slowest = max(range(len(seconds)), key=lambda stage: seconds[stage])
    over = round(100 * (seconds[slowest] / mean - 1.0)) if mean > 0 else 0
    if over == 0:
        return "all stages take the same"
    return f"stage {slowest} is {over} % slower than the mean"
