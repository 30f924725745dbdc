"""The learning rate of a mini-batch, from the spec alone: nothing to store, nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Literal

from alray.config.sections.duration import Duration
from alray.config.sections.lr_schedule import LrSchedule, OneCycle
from alray.config.sections.spec import Spec
from alray.core.errors import PlanError
from alray.runtime.stage.workload import DataFacts


def rates(spec: Spec, step: int, *, data: DataFacts, total_steps: int) -> tuple[float, float]:
    """Learning rates of mini-batch `step`, counted from 1: of the encoders, and of the label chain."""

    def rate(base: float) -> float:
        return learning_rate(
            base,
            spec.lr_schedule,
            step - 1,
            mini_batches=partial(data.mini_batches, batch_size=spec.data.batch_size),
            total_steps=total_steps,
            batch_size=spec.data.batch_size,
            accumulate=spec.optimizer.accumulate,
        )

    lr, label_lr = spec.optimizer.lr, spec.optimizer.label_lr
    return rate(lr), rate(lr if label_lr is None else label_lr)


def learning_rate(
    base: float,
    schedule: LrSchedule,
    step: int,
    *,
    mini_batches: Callable[[Duration], int],
    total_steps: int | None,
    batch_size: int | None = None,
    accumulate: int = 1,
) -> float:
    """The rate of the mini-batch that follows `step` completed ones (0 for the first).

    base: the optimizer's rate. schedule: the spec's `lr_schedule`. Its full rate is `base` scaled with the batch
    (`batch_factor`); `kind` is one of
        constant   the full rate throughout
        cosine     half a cosine from the full rate at the end of warm-up to `final_lr` at `total_steps`
        linear     straight from the full rate at the end of warm-up to `final_factor` times it `decay_steps`
                   mini-batches later (null: after the share `decay_share` of those that are left of `total_steps`),
                   then constant
        step       the full rate times `factor` for each `every` that has passed since the start of the run
        multi_step the full rate times `factor` for each entry of `at` that has passed since the start of the run
        rising     straight from `first_factor` to `final_factor` times the full rate, over `length` (null: until
                   `total_steps`), then constant
        one_cycle  from `first_factor` times the full rate up to it, over the share `rise` of `length` (null: of
                   `total_steps`), then down to `final_factor` times it (Smith and Topin 2018, arXiv 1708.07120)
    Over the first `warmup_epochs` epochs the rate rises in equal steps, one a mini-batch: from zero (`warmup_from`),
    so that the last mini-batch has the full rate, or from `base`, which the first one has, so that the first one after
    the warm-up has the full rate (Goyal et al. 2017, arXiv 1706.02677, section 2.2).

    Args:
        mini_batches: the number of mini-batches in a duration.
        batch_size: samples of a mini-batch over all replicas, needed where the rate is scaled.
        accumulate: mini-batches of an update; they share one rate, that of the same update in a run with mini-batches
            so many times as large.

    Raises:
        PlanError: where the end of a decay is needed and the run has no number of steps, and where the rate cannot be
            scaled for want of a batch size.
    """
    full = base * batch_factor(schedule, None if batch_size is None else batch_size * accumulate)
    warm_up: int = mini_batches(Duration(schedule.warmup_epochs, "epochs"))
    begun = step // accumulate * accumulate  # mini-batches before those of this update
    if begun < warm_up:
        if schedule.warmup_from == "base":
            return _between(base, full, begun / warm_up)
        return full * min(1.0, (begun + accumulate) / warm_up)
    if schedule.kind == "constant":
        return full
    if schedule.kind == "cosine":
        share = _share(begun - warm_up, _length(schedule, None, total_steps) - warm_up)
        return _between(float(schedule.final_lr), full, _cosine(share))
    if schedule.kind == "linear":
        decay = schedule.decay_steps or schedule.decay_share * (_length(schedule, None, total_steps) - warm_up)
        return full * _between(1.0, float(schedule.final_factor), _share(begun - warm_up, decay))
    if schedule.kind == "step":
        return full * float(schedule.factor) ** (begun // max(1, mini_batches(schedule.every)))
    if schedule.kind == "multi_step":
        return full * float(schedule.factor) ** sum(begun >= mini_batches(each) for each in schedule.at)
    length = _length(schedule, None if schedule.length is None else mini_batches(schedule.length), total_steps)
    if schedule.kind == "rising":
        return full * _between(schedule.first_factor, schedule.final_factor, _share(begun, length))
    assert schedule.kind == "one_cycle", "the grammar has no other kinds"
    return full * _cycle(schedule, begun, length, accumulate)


def _cycle(schedule: OneCycle, begun: int, length: int, accumulate: int) -> float:
    """The factor of a cycle. As in torch's OneCycleLR, an update has the peak and the last one the end, not the one
    after them."""
    peak, end = schedule.rise * length - accumulate, length - accumulate
    if begun <= peak:
        return _annealed(schedule.anneal, schedule.first_factor, 1.0, _share(begun, peak))
    return _annealed(schedule.anneal, 1.0, schedule.final_factor, _share(begun - peak, end - peak))


def _annealed(how: Literal["cosine", "linear"], first: float, last: float, share: float) -> float:
    return _between(last, first, _cosine(share)) if how == "cosine" else _between(first, last, share)


def batch_factor(schedule: LrSchedule, samples: int | None) -> float:
    """Return the factor for a rate tuned for `reference_batch_size` samples, where an update has `samples` samples.

    linear        samples / reference          (Goyal et al. 2017, arXiv 1706.02677, section 2.1)
    square_root   sqrt(samples / reference)    (Krizhevsky 2014, arXiv 1404.5997, section 5: the variance of an update)
    Raises PlanError where either number is missing and the schedule scales.
    """
    if schedule.scale_with_batch == "none":
        return 1.0
    if samples is None or schedule.reference_batch_size is None:
        raise PlanError(
            f"`{schedule.scale_with_batch}` needs the size of the batch and of the one that the rate is meant for",
            hint="give data.batch_size and lr_schedule.reference_batch_size",
            key="lr_schedule.scale_with_batch",
        )
    ratio = samples / schedule.reference_batch_size
    if schedule.scale_with_batch == "linear":
        return float(ratio)
    if schedule.scale_with_batch == "square_root":
        return math.sqrt(ratio)
    raise PlanError(
        f"unknown rule `{schedule.scale_with_batch}`",
        hint="choose none, linear or square_root",
        key="lr_schedule.scale_with_batch",
    )


def _between(first: float, last: float, share: float) -> float:
    """`share` of the way from first to last, in 0..1; exactly first at 0 and last at 1."""
    return first * (1.0 - share) + last * share


def _cosine(share: float) -> float:
    """Half a cosine, from 1 at 0 to 0 at 1."""
    return (1.0 + math.cos(math.pi * share)) / 2.0


def _length(schedule: LrSchedule, given: int | None, total_steps: int | None) -> int:
    """The length of a schedule in mini-batches: the given one, or that of the run."""
    if given is not None:
        return given
    if total_steps is None:
        raise PlanError(
            f"lr_schedule `{schedule.kind}` needs to know where the run ends",
            hint="give run.epochs, run.steps or run.samples",
            key="lr_schedule.kind",
        )
    return total_steps


def _share(done: float, steps: float) -> float:
    return min(1.0, done / steps) if steps > 0 else 1.0
