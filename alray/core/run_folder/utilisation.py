"""How busy stages are, from the records of a run as they come."""

from __future__ import annotations

from statistics import fmean

from alray.core.run_folder.records import StageRecord


class Utilisation:
    """What a stage computes for a mini-batch, divided by the latest step time of the last stage.

    A stage cannot tell by itself: in a pipeline it may be done with its mini-batches early, and begin an evaluation.
    """

    def __init__(self) -> None:
        self._step_s: dict[int, float] = {}  # by replica

    def take(self, record: StageRecord) -> float | None:
        """Take over a record of a stage; return its utilisation in 0..1, None during warm-up and before the last stage
        has measured a step time."""
        if record.warm_up or not record.steps:
            return None
        if record.step_times_s:
            self._step_s[record.replica] = fmean(record.counted_times_s)
        step_s = self._step_s.get(record.replica)
        if not step_s:
            return None
        own = record.between_cuts
        if not own.steps:
            own = record
        # Both are means, over mini-batches that are not quite the same.
        return min(1.0, own.compute_s / own.steps / step_s)
