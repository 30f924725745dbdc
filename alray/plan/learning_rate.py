"""The learning rate of a mini-batch, from the spec alone: nothing to store, nothing to restore."""

from __future__ import annotations

import math
from typing import Any

from alray.errors import PlanError


def learning_rate(base: float, schedule: Any, step: int, *, steps_per_epoch: int, total_steps: int | None) -> float:
    """The rate of the mini-batch that follows `step` completed ones (0 for the first).

    schedule: the spec's `lr_schedule`; `kind` is one of
        constant   `base` throughout
        cosine     half a cosine from `base` at the end of warm-up to `final_lr` at `total_steps`
        linear     straight from `base` at the end of warm-up to `base * final_factor` `decay_steps`
                   mini-batches later (null: at `total_steps`), then constant
    Over the first `warmup_epochs` epochs the rate rises in equal steps, up to `base` with the last of them.
    Raises PlanError where the end of a decay is needed and the run has no number of steps.
    """
    warm_up = round(schedule.warmup_epochs * steps_per_epoch)
    if step < warm_up:
        return float(base * (step + 1) / warm_up)
    if schedule.kind == "constant":
        return base
    if schedule.kind == "cosine":
        share = _share(step - warm_up, _decay_steps(schedule.kind, None, warm_up, total_steps))
        return float(schedule.final_lr + (base - schedule.final_lr) * (1.0 + math.cos(math.pi * share)) / 2.0)
    if schedule.kind == "linear":
        share = _share(step - warm_up, _decay_steps(schedule.kind, schedule.decay_steps, warm_up, total_steps))
        return float(base * (1.0 - (1.0 - schedule.final_factor) * share))
    raise PlanError(
        f"unknown lr_schedule `{schedule.kind}`",
        mend="choose constant, cosine or linear",
        key="lr_schedule.kind",
    )


def _decay_steps(kind: str, given: int | None, warm_up: int, total_steps: int | None) -> int:
    if given is not None:
        return given
    if total_steps is None:
        raise PlanError(
            f"lr_schedule `{kind}` needs to know where the run ends",
            mend="give run.epochs, run.steps or run.samples",
            key="lr_schedule.kind",
        )
    return total_steps - warm_up


def _share(done: int, steps: int) -> float:
    return min(1.0, done / steps) if steps > 0 else 1.0
