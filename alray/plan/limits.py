"""What limits the step: one sentence for whoever reads the plan."""

from __future__ import annotations

from collections.abc import Sequence

from alray.plan.bounds import best_partition
from alray.plan.costs import Costs
from alray.plan.predict import Prediction, predict_step, stage_durations

_WORTH_TELLING = 1.01  # gains under 1 % are within what a measurement tells


def limited_by(
    schedule: str,
    costs: Costs,
    partition: Sequence[int],
    in_flight: int,
    prediction: Prediction,
    *,
    replicas: int,
    cores: int | None,
) -> str:
    """One sentence: what the step time hangs on, and a better cut where there is one."""
    stages = len(partition)
    if prediction.shared and cores is not None:
        threads = stages * replicas * costs.threads
        return (
            f"processors are shared: {_count(threads, 'thread')} of {_count(stages * replicas, 'stage')} "
            f"on {_count(cores, 'processor')}"
        )
    if stages == 1:
        return "one stage does all the work"
    reason = _reason(schedule, costs, partition)
    best = best_partition(schedule, costs, stages)
    if best == tuple(partition):
        return f"{reason}; no other cut is better"
    better = predict_step(schedule, costs, best, in_flight, replicas=replicas, cores=cores)
    gain = prediction.step_time_s / better.step_time_s if better.step_time_s > 0 else 1.0
    if gain < _WORTH_TELLING:
        return f"{reason}; no other cut is better by 1 %"
    return f"{reason}; best cut {list(best)} gives {gain:.2f}x"


def _reason(schedule: str, costs: Costs, partition: Sequence[int]) -> str:
    durations = stage_durations(costs, partition)
    forward = durations.forward_s
    backward = [b + u for b, u in zip(durations.backward_s, durations.update_s, strict=True)]
    if schedule == "sequential":
        return "one stage works at a time"
    if schedule == "streamed":
        return _slowest([f + b for f, b in zip(forward, backward, strict=True)], "")
    return f"forwards follow each other ({sum(forward) * 1e3:.3g} ms), then {_slowest(backward, ' in backward')}"


def _slowest(seconds: Sequence[float], of_what: str) -> str:
    mean = sum(seconds) / len(seconds)
    slowest = max(range(len(seconds)), key=lambda stage: seconds[stage])
    over = round(100 * (seconds[slowest] / mean - 1.0)) if mean > 0 else 0
    if over == 0:
        return f"all stages take the same{of_what}"
    return f"stage {slowest} is {over} % slower{of_what} than the mean"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"
