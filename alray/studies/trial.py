"""One trial: a run in the process that Ray Tune started for it, which a trial of several stages only drives.

Divergence, a refusal and an error of a user's code are results. A failure of the machine is not: it is raised, and the
trial runs again.
"""

from __future__ import annotations

import gc
import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from alray.config.objects import NO_OBJECTS, Objects
from alray.config.sections.run import StopAt
from alray.config.study.trials import Trial
from alray.core.errors import AlrayError, ChannelError, NodesLost, NonFiniteLoss, StageError, SystemFault
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import EvaluationRecord, Record, StageRecord, Standing, StepRecord, effective, read
from alray.core.system_errors import system_faults
from alray.orchestrate import run_spec
from alray.planning.prediction.plan import Plan
from alray.report.attempts import split_attempts
from alray.report.training_time import TrainingTime
from alray.runtime.observer import Observer
from alray.runtime.options import Finished, Options
from alray.studies.folder import StudyFolder
from alray.studies.records import Reached, Times, TrialRecord, TrialStatus

OF_THE_MACHINE = (SystemFault, StageError, ChannelError)
"""What a run may raise that says nothing of the settings of a trial. An error that a run ended with is judged in
`_ended`: out of memory, for example, is a result."""


_GROWN = 10.0
"""A trial whose losses end above this many times their first values has diverged. Losses that begin at 0 or below are
measured by the size of the first sum that is not 0."""
_LAST = 0.1
"""The share of the mini-batches whose mean loss counts as the end."""


@dataclass(frozen=True)
class TrialOrder:
    """The instructions for a process that runs a trial.

    Attributes:
        one_process: the trial has one stage of one replica, which runs in the trial's process.
        keeps_checkpoints: they are not deleted at the end.
        target: the metric of the validation set to reach; None: none.
        stop_at: that of the trial's spec.
        objects: that a Python program gave.
        began: as in its record.
        command: what the user typed, where the order is made.
    """

    trial: Trial
    folder: StudyFolder
    base: Path
    one_process: bool
    keeps_checkpoints: bool
    target: float | None
    allow_code: bool
    stop_at: StopAt | None = None
    objects: Objects = NO_OBJECTS
    began: str | None = None
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))


class Unwatched(Observer):
    """The observer of a run that nobody watches, and that nobody interrupts."""

    count = 0
    reason = "on request"
    error: AlrayError | None = None


@dataclass
class _Listening(Unwatched):
    """Passes evaluations on, but not the one that ends the run: there is nothing left to decide."""

    evaluated: Callable[[EvaluationRecord], None]
    stop_at: StopAt | None = None
    total_steps: int | None = None
    standing: Standing = field(default_factory=Standing)

    def planned(self, plan: Plan) -> None:
        self.total_steps = plan.total_steps

    def record(self, record: Record) -> None:
        if not isinstance(record, EvaluationRecord):
            return
        self.standing = self.standing.after(record)
        is_last = self.total_steps is not None and record.step >= self.total_steps
        if not is_last and not (self.stop_at is not None and self.stop_at.reached(self.standing)):
            self.evaluated(record)


@cache
def prepare_process() -> None:
    """Make this process one that runs trials of a study and nothing else: import what all of them need, and keep data.

    A second call does nothing.
    """
    gc.disable()  # what imports make is no garbage, and to look through it takes a fifth of their time
    import alray.report.summary
    import alray.runtime.graph.inline
    import alray.runtime.planner.planning
    import alray.runtime.runner.driver
    import alray.runtime.runner.provenance
    import alray.runtime.runner.recorder  # noqa: F401
    from alray.data.cache import enable_cache
    from alray.runtime.device.memory_used import run_first_kernels

    enable_cache()
    run_first_kernels()
    gc.freeze()
    gc.enable()


def run_trial(order: TrialOrder, evaluated: Callable[[EvaluationRecord], None] = lambda record: None) -> TrialRecord:
    """Run a trial to its end and keep its record.

    Raises one of OF_THE_MACHINE, without a record, if the trial did not come to its end and may do so if it runs again.

    Args:
        evaluated: is called with every evaluation but the one that ends the run. If it raises SystemExit the trial
            stops there, without a record.
    """
    with system_faults():
        record = _run(order, evaluated)
        order.folder.write(record)
    return record


def _run(order: TrialOrder, evaluated: Callable[[EvaluationRecord], None]) -> TrialRecord:
    run_dir = order.folder.trial_dir(order.trial.number)
    order.folder.clear(order.trial.number)
    options = Options(
        inline=order.one_process,
        run_dir=run_dir,
        allow_code=order.allow_code,
        objects=order.objects,
        pages=False,
        command=order.command,
        study=order.folder.path,
        session=order.trial.session,
    )
    listening = _Listening(evaluated, order.stop_at)
    try:
        finished = run_spec(order.base, list(order.trial.overrides), options, listening, listening)
    except OF_THE_MACHINE:
        raise
    except AlrayError as error:
        record = record_of(order.trial, "failed", str(error), began=order.began)
    else:
        if isinstance(finished.error, SystemFault | NodesLost):
            raise finished.error
        record = _ended(order, finished, run_dir)
    if not order.keeps_checkpoints:
        shutil.rmtree(run_dir / "checkpoints", ignore_errors=True)
    return record


def record_of(trial: Trial, status: TrialStatus, reason: str | None = None, *, began: str | None = None) -> TrialRecord:
    """The record of a trial without a run."""
    return TrialRecord(
        number=trial.number,
        point=dict(trial.point.values),
        index=trial.index,
        values=dict(trial.values),
        seed=trial.seed,
        session=trial.session,
        began=began,
        overrides=list(trial.overrides),
        status=status,
        reason=reason,
    )


def _ended(order: TrialOrder, finished: Finished, run_dir: Path) -> TrialRecord:
    """The record of a trial whose run has ended."""
    effective_records = effective(read(run_dir / "records.jsonl"))
    reached = first_reached(effective_records, order.target) if order.target is not None else None
    status: TrialStatus = "finished" if reached is None else "reached"
    reason = divergence(effective_records)
    if finished.error is not None:
        status, reason = "lost" if finished.lost else "failed", str(finished.error)
        if isinstance(finished.error, NonFiniteLoss):
            status = "diverged"
    elif reason is not None and reached is None:
        status = "diverged"
    else:
        reason = None
    summary = finished.summary
    took = times(effective_records, summary.epochs) if finished.error is None and summary is not None else None
    found = {"reached": reached, "times": took, "summary": summary}
    return record_of(order.trial, status, reason, began=order.began).model_copy(update=found)


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
