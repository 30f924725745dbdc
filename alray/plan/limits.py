"""What limits the step: one sentence for whoever reads the plan."""

from __future__ import annotations

from collections.abc import Sequence

from alray.plan.best import best_partition
from alray.plan.durations import action_durations, computing_s
from alray.plan.predict import StepPrediction, predict_step
from alray.plan.setting import Setting

_WORTH_TELLING = 1.01  # gains under 1 % are within what a measurement tells


def limited_by(setting: Setting, partition: Sequence[int], prediction: StepPrediction, *, is_best: bool) -> str:
    """One sentence: what the step time hangs on, and a better cut where there is one.

    is_best: whether `partition` is known to be the best one.
    """
    stages, costs, cores = setting.stages, setting.costs, setting.cores
    if prediction.shared and cores is not None:
        threads = stages * setting.replicas * costs.threads
        return (
            f"processors are shared: {_count(threads, 'thread')} of {_count(stages * setting.replicas, 'stage')} "
            f"on {_count(cores, 'processor')}"
        )
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
    if setting.schedule in ("sequential", "naive"):
        return "one stage works at a time"
    durations = action_durations(setting, partition)
    if setting.is_pipeline:
        slowest = _slowest(computing_s(setting, durations), "")
        return (
            f"with {_count(setting.micro_batches, 'micro-batch', 'micro-batches')} the stages idle for "
            f"{prediction.bubble * 100:.3g} % of the step, and {slowest}"
        )
    forward = durations.forward_s
    backward = [b + u for b, u in zip(durations.backward_s, durations.update_s, strict=True)]
    if setting.schedule == "streamed":
        return _slowest([f + b for f, b in zip(forward, backward, strict=True)], "")
    return f"forwards follow each other ({sum(forward) * 1e3:.3g} ms), then {_slowest(backward, ' in backward')}"


def _slowest(seconds: Sequence[float], of_what: str) -> str:
    mean = sum(seconds) / len(seconds)
    slowest = max(range(len(seconds)), key=lambda stage: seconds[stage])
    over = round(100 * (seconds[slowest] / mean - 1.0)) if mean > 0 else 0
    if over == 0:
        return f"all stages take the same{of_what}"
    return f"stage {slowest} is {over} % slower{of_what} than the mean"


def _count(number: int, name: str, plural: str | None = None) -> str:
    return f"{number} {name if number == 1 else plural or name + 's'}"
