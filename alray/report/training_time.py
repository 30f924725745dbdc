"""The time that a run has trained: the one figure that pages of runs, of comparisons and of studies call seconds of
training."""

from __future__ import annotations

from collections.abc import Sequence

from alray.report.attempts import split_attempts
from alray.run_folder.records import EvaluationRecord, Record, StepRecord

TRAINING_S = "seconds of training, without start-up and evaluations"
"""The label of an axis of `training_s`."""


def training_s(effective_records: Sequence[Record], evaluation: EvaluationRecord) -> float | None:
    """Seconds of training before an evaluation: without start-up, without other evaluations, and without the time that
    a failure took. The first mini-batch of each start is not timed: it counts as the mean of the others. None if no
    other mini-batch was done by then.

    Args:
        effective_records: the records of a run without lost work, in the order in which they were written.
    """
    trained_s, timed = 0.0, 0
    for attempt in split_attempts(effective_records):
        done = sorted(
            (record.step, record.time_s)
            for record in attempt.records
            if isinstance(record, StepRecord) and record.step <= evaluation.step
        )
        if not done:
            continue
        (first, first_s), (last, last_s) = done[0], done[-1]
        if evaluation in attempt.records:
            last, last_s = evaluation.step, evaluation.time_s - evaluation.duration_s
        paused_s = sum(
            record.duration_s
            for record in attempt.records
            if isinstance(record, EvaluationRecord) and record != evaluation and record.time_s <= last_s
        )
        trained_s += max(0.0, last_s - first_s - paused_s)
        timed += last - first
    return trained_s * evaluation.step / timed if timed else None
