"""The progress of a run, computed from its records; every display shows these figures."""

from __future__ import annotations

from collections import deque

from alray.core.run_folder.records import (
    EvaluationRecord,
    EventRecord,
    PlanRecord,
    Record,
    StageRecord,
    StepRecord,
    mean_losses,
)
from alray.core.run_folder.utilisation import Utilisation
from alray.planning.prediction.plan import Plan
from alray.report.text import seconds, share

_NUM_AVERAGED = 20  # mini-batches whose losses are averaged; a single one varies too much to be read


class Progress:
    """The state of one run. `take` updates it with one record after another."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.step = 0
        """Mini-batches completed, by the latest losses: those of `losses`."""
        self.evaluation: EvaluationRecord | None = None
        self.samples_per_s: float | None = None
        """As in `summary.json`, of the latest record; None during warm-up."""
        self._losses: deque[dict[int, dict[str, float]]] = deque(maxlen=_NUM_AVERAGED)
        self._first: StepRecord | None = None
        self._last: StepRecord | None = None
        self._utilisation = Utilisation()
        self._shares: dict[tuple[int, int], float] = {}

    def take(self, record: Record) -> None:
        """Update the state with a record. The event `resumed` discards what was lost. A plan holds from now on."""
        if isinstance(record, StepRecord):
            self._take_step(record)
        elif isinstance(record, StageRecord):
            if (share := self._utilisation.take(record)) is not None:
                self._shares[record.stage, record.replica] = share
            if record.samples_per_s is not None and not record.warm_up:
                self.samples_per_s = record.samples_per_s
        elif isinstance(record, EvaluationRecord):
            self.evaluation = record
        elif isinstance(record, EventRecord) and record.event == "resumed":
            self.step = record.step
            if self.evaluation is not None and self.evaluation.step > record.step:
                self.evaluation = None
            self._first = self._last = self.samples_per_s = None
            self._losses.clear()
        elif isinstance(record, PlanRecord):
            self.plan = Plan.from_json(record.plan)
            self._utilisation = Utilisation()
            self._shares.clear()

    def _take_step(self, record: StepRecord) -> None:
        self.step = record.step
        self._losses.append(record.losses)
        self._last = record
        self._first = self._first or record

    @property
    def epoch(self) -> float:
        """Epochs completed."""
        return self.step / self.plan.steps_per_epoch

    @property
    def num_epochs(self) -> float | None:
        """Epochs that the run will have; None if its length is not known."""
        return self.plan.total_steps / self.plan.steps_per_epoch if self.plan.total_steps is not None else None

    @property
    def left_s(self) -> float | None:
        """Seconds to the end at the mean speed so far, evaluations included; None before it is known."""
        if self.plan.total_steps is None or self._first is None or self._last is None:
            return None
        first, last = self._first, self._last
        if last.step <= first.step:
            return None
        return (self.plan.total_steps - last.step) * (last.time_s - first.time_s) / (last.step - first.step)

    @property
    def losses(self) -> dict[int, dict[str, float]]:
        """Component (from 0) -> loss name -> mean over those of the last 20 mini-batches until `step` that have it."""
        return mean_losses(self._losses)

    @property
    def computing(self) -> dict[int, float]:
        """Stage -> share of time in which it computes, in 0..1: the latest record, as a mean over the replicas.

        Empty during warm-up.
        """
        by_stage: dict[int, list[float]] = {}
        for (stage, _), computed in sorted(self._shares.items()):
            by_stage.setdefault(stage, []).append(computed)
        return {stage: sum(shares) / len(shares) for stage, shares in by_stage.items()}


def computing_text(progress: Progress) -> str:
    """The share of time in which each stage computes, in one line: `stages computing 85 %, 80 %`."""
    return f"stages computing {', '.join(share(value) for value in progress.computing.values())}"


def progress_text(progress: Progress) -> str:
    """Progress and speed in one line: `epoch 3.2 of 20, mini-batch 64 of 400, 1,650 samples/s, 4.1 s left`."""
    plan = progress.plan
    parts = [f"epoch {progress.epoch:.2f}", f"mini-batch {progress.step:,}"]
    if plan.total_steps is not None and progress.num_epochs is not None:
        digits = 0 if progress.num_epochs.is_integer() else 2
        parts = [
            f"epoch {progress.epoch:.2f} of {progress.num_epochs:.{digits}f}",
            f"mini-batch {progress.step:,} of {plan.total_steps:,}",
        ]
    if progress.samples_per_s is not None:
        parts.append(f"{progress.samples_per_s:,.0f} samples/s")
    if progress.left_s is not None:
        parts.append(f"{seconds(progress.left_s)} left")
    return ", ".join(parts)
