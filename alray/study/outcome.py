"""How a trial came out, computed from the records of its run: its way to the target, and whether it diverged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from alray.records import EvaluationRecord, Record, StepRecord
from alray.study.records import Reached

_GROWN = 10.0
"""A trial whose losses end above this many times those of its first mini-batch has diverged."""
_LAST = 0.1
"""The share of the mini-batches whose mean loss counts as the end."""


def first_reached(kept: Sequence[Record], accuracy: float) -> Reached | None:
    """The first evaluation with at least this validation accuracy (Shallue et al. 2019, section 4.1); None without one.

    kept: the records of a run without lost work, see `alray.records.effective`.
    """
    evaluations = sorted(
        (record for record in kept if isinstance(record, EvaluationRecord)),
        key=lambda record: (record.step, record.time_s),
    )
    for evaluation in evaluations:
        if evaluation.validation is not None and evaluation.validation >= accuracy:
            return Reached(step=evaluation.step, samples=evaluation.samples, training_s=_training_s(kept, evaluation))
    return None


def divergence(kept: Sequence[Record]) -> str | None:
    """Why a run that came to its end has diverged all the same; None if it has not.

    With bounded activations, losses stay finite at any learning rate; they only grow.
    """
    totals = [
        sum(loss for losses in record.losses.values() for loss in losses.values())
        for record in sorted(
            (record for record in kept if isinstance(record, StepRecord)), key=lambda record: record.step
        )
    ]
    if not totals:
        return None
    end = fmean(totals[-max(1, round(_LAST * len(totals))) :])
    if math.isfinite(end) and end <= _GROWN * totals[0]:
        return None
    return f"the losses grew from {totals[0]:.3g} in the first mini-batch to {end:.3g} at the end"


def _training_s(kept: Sequence[Record], evaluation: EvaluationRecord) -> float | None:
    """Seconds of training before an evaluation: without the time before the first mini-batch was done, whose share is
    replaced by the mean of the others, and without earlier evaluations."""
    done = [record for record in kept if isinstance(record, StepRecord) and record.step <= evaluation.step]
    if not done:
        return None
    first = min(done, key=lambda record: record.step)
    if first.step == evaluation.step:
        return None
    paused_s = sum(
        record.duration_s for record in kept if isinstance(record, EvaluationRecord) and record.step < evaluation.step
    )
    trained_s = evaluation.time_s - evaluation.duration_s - first.time_s - paused_s
    return max(0.0, trained_s) * evaluation.step / (evaluation.step - first.step)
