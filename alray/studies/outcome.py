"""How a trial came out, computed from the records of its run: its way to the target, what it took, and whether it
diverged."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import EvaluationRecord, Record, StageRecord, StepRecord
from alray.report.attempts import split_attempts
from alray.report.training_time import TrainingTime
from alray.studies.records import Reached, Times

_GROWN = 10.0
"""A trial whose losses end above this many times their first values has diverged. Losses that begin at 0 or below are
measured by the size of the first sum that is not 0."""
_LAST = 0.1
"""The share of the mini-batches whose mean loss counts as the end."""


def first_reached(effective_records: Sequence[Record], bound: float) -> Reached | None:
    """The first evaluation whose metric on the validation set reaches a bound (Shallue et al. 2019, section 4.1); None
    without one.

    Args:
        effective_records: the records of a run without lost work, see `alray.core.run_folder.records.effective`.
    """
    evaluations = sorted(
        (record for record in effective_records if isinstance(record, EvaluationRecord)),
        key=lambda record: (record.step, record.time_s),
    )
    for evaluation in evaluations:
        if METRICS[evaluation.metric].reaches(evaluation.validation, bound):
            seconds = TrainingTime(effective_records).until(evaluation.step)
            return Reached(step=evaluation.step, samples=evaluation.samples, training_s=seconds)
    return None


def times(effective_records: Sequence[Record], epochs: float) -> Times:
    """What a run took.

    Args:
        epochs: that it trained.
    """
    evaluations = [record for record in effective_records if isinstance(record, EvaluationRecord)]
    last = max(evaluations, key=lambda record: (record.step, record.time_s), default=None)
    trained_s = TrainingTime(effective_records).until(last.step) if last is not None else None
    stages: dict[int, list[StageRecord]] = {}
    for attempt in split_attempts(effective_records):
        for record in attempt.timed.records:
            if record.steps:
                stages.setdefault(record.stage, []).append(record)

    def part_s(name: str) -> float | None:
        of_stages = (
            sum(getattr(each, name) for each in records) / sum(each.steps for each in records)
            for records in stages.values()
        )
        return sum(of_stages) if stages else None

    return Times(
        training_s=trained_s,
        epoch_s=trained_s / epochs if trained_s is not None and epochs > 0 else None,
        forward_s=part_s("forward_s"),
        backward_s=part_s("backward_s"),
        update_s=part_s("update_s"),
    )


def divergence(effective_records: Sequence[Record]) -> str | None:
    """Why a run that came to its end has diverged all the same; None if it has not.

    With bounded activations, losses stay finite at any learning rate; they only grow.
    """
    steps = (record for record in effective_records if isinstance(record, StepRecord))
    records = sorted(steps, key=lambda record: record.step)
    if not records:
        return None
    losses = [_losses(record) for record in records]
    begun: dict[tuple[int, str], float] = {}
    for of_record in reversed(losses):
        begun.update(of_record)
    # A loss may begin late, when the others have diverged. So those of the first mini-batch count alone, too.
    for names in (losses[0].keys(), begun.keys()):
        first = sum(begun[name] for name in names)
        totals = [sum(loss for name, loss in of_record.items() if name in names) for of_record in losses]
        last = [
            (total, record.mini_batches)
            for total, record in zip(totals, records, strict=True)
            if record.step > (1.0 - _LAST) * records[-1].step
        ]
        end = sum(total * count for total, count in last) / sum(count for _, count in last)
        scale = next(filter(None, map(abs, (first, *totals))), 0.0)  # a loss may be 0 at first, or negative
        if not (math.isfinite(end) and end - first <= (_GROWN - 1.0) * scale):
            return f"the losses grew from {first:.3g} where they began to {end:.3g} at the end"
    return None


def _losses(record: StepRecord) -> dict[tuple[int, str], float]:
    """All losses of all components, by component and name."""
    return {(component, name): loss for component, own in record.losses.items() for name, loss in own.items()}


def total_loss(record: StepRecord) -> float:
    """The sum of all losses of all components."""
    return sum(loss for losses in record.losses.values() for loss in losses.values())
