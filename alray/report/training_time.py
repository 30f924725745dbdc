"""The time that a run has trained: the one figure that pages of runs, of comparisons and of studies call seconds of
training."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from statistics import fmean

from alray.core.run_folder.records import PlanRecord, Record
from alray.report.attempts import Attempt, split_attempts

TRAINING_S = "seconds of training, without start-up and evaluations"
"""The label of an axis of `TrainingTime.until`."""


class TrainingTime:
    """Seconds of training of a run: the sum of the step times of its mini-batches.

    So start-up, evaluations, checkpoints and the time that a failure took are in no such figure, whatever the schedule
    and wherever a stage makes its part of a cut. A mini-batch without a step time, such as the first one after an
    evaluation of a pipeline, counts as the mean of the others of its attempt.
    """

    def __init__(self, effective_records: Sequence[Record]) -> None:
        """
        Args:
            effective_records: the records of a run without lost work, in the order in which they were written.
        """
        attempts = [_steps_s(attempt) for attempt in split_attempts(effective_records)]
        known = [seconds for steps in attempts for seconds in steps.values() if seconds is not None]
        mean = fmean(known) if known else None
        seconds_of: dict[int, float | None] = {}
        for steps in attempts:
            own = [seconds for seconds in steps.values() if seconds is not None]
            untimed = fmean(own) if own else mean
            seconds_of |= {number: untimed if seconds is None else seconds for number, seconds in steps.items()}
        last = max(seconds_of, default=0)
        self._until: list[float] = []
        if mean is not None:
            steps_s = (seconds_of.get(number) for number in range(1, last + 1))
            self._until = [0.0, *accumulate(mean if seconds is None else seconds for seconds in steps_s)]

    def until(self, step: int) -> float | None:
        """Seconds in which the first `step` mini-batches were trained. None where no step time was measured by now."""
        return self._until[min(step, len(self._until) - 1)] if self._until else None


def _steps_s(attempt: Attempt) -> dict[int, float | None]:
    """The step time of each mini-batch of an attempt, as a mean over replicas; None where it is not known."""
    known: dict[int, list[float]] = {}
    for step in attempt.whole.step_times:
        known.setdefault(step.number, []).append(step.seconds)
    began_after = attempt.records[0].step
    ended_after = max(record.step for record in attempt.records if not isinstance(record, PlanRecord))
    return {
        number: fmean(known[number]) if number in known else None for number in range(began_after + 1, ended_after + 1)
    }
