"""What limits the step: one sentence for the reader of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from alray.plan.best import best_partition
from alray.plan.durations import action_durations, computing_s
from alray.plan.predict import StepPrediction, predict_step
from alray.plan.setting import Setting
from alray.schedules.table import SCHEDULES

_WORTH_TELLING = 1.01  # a measurement cannot show a gain of less than 1 %


def limited_by(setting: Setting, partition: Sequence[int], prediction: StepPrediction, *, is_best: bool) -> str:
    """One sentence: what the step time depends on, and a better cut where there is one.

    is_best: whether `partition` is known to be the best cut.
    """
    stages, costs, cores = setting.stages, setting.costs, setting.cores
    if prediction.shared and cores is not None:
        threads = stages * setting.replicas * costs.threads
        return (
            f"processors are shared: {_count(threads, 'thread')} of {_count(stages * setting.replicas, 'stage')} "
            f"on {_count(cores, 'processor')}"
        )
    if setting.in_turns:
        return "the stages take turns in one process: a step takes as long as the work of all of them"
    if stages == 1:
        return "one stage does all the work"
    reason = _reason(setting, partition, prediction)
    if is_best:
        return f"{reason}; no other cut is better"
    best = best_partition(setting)
    if best == tuple(partition):
        return f"{reason}; no other cut is better"
    better = predict_step(setting, best)
    gain = prediction.step_time_s / better.step_time_s if better.step_time_s > 0 else 1.0
    if gain < _WORTH_TELLING:
        return f"{reason}; no other cut is better by 1 %"
    return f"{reason}; best cut {list(best)} gives {gain:.2f}x"


def _reason(setting: Setting, partition: Sequence[int], prediction: StepPrediction) -> str:
    """The schedule's own sentence with its fields filled in."""
    durations = action_durations(setting, partition)
    return SCHEDULES[setting.schedule].limited_by.format(
        slowest=_slowest(computing_s(setting, durations), ""),
        slowest_backward=_slowest(durations.after_forward_s, " in backward"),
        forwards=f"{sum(durations.forward_s) * 1e3:.3g} ms",
        micro_batches=_count(setting.micro_batches, "micro-batch", "micro-batches"),
        idle=f"{(prediction.bubble or 0.0) * 100:.3g} %",
    )


def _slowest(seconds: Sequence[float], of_what: str) -> str:
    mean = sum(seconds) / len(seconds)
    slowest = max(range(len(seconds)), key=lambda stage: seconds[stage])
    over = round(100 * (seconds[slowest] / mean - 1.0)) if mean > 0 else 0
    if over == 0:
        return f"all stages take the same{of_what}"
    return f"stage {slowest} is {over} % slower{of_what} than the mean"


def _count(number: int, name: str, plural: str | None = None) -> str:
    return f"{number} {name if number == 1 else plural or name + 's'}"
