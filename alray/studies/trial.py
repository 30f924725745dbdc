"""One trial: a run in the process that Ray Tune started for it, which a trial of several stages only drives.

Divergence, a refusal and an error of a user's code are results. A failure of the machine is not: it is raised, and the
trial runs again.
"""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from alray.config.objects import NO_OBJECTS, Objects
from alray.config.sections.run import StopAt
from alray.config.study.trials import Trial
from alray.core.errors import AlrayError, ChannelError, NodesLost, NonFiniteLoss, StageError, SystemFault
from alray.core.run_folder.records import EvaluationRecord, Record, Standing, effective, read
from alray.core.system_errors import system_faults
from alray.orchestrate import run_spec
from alray.planning.prediction.plan import Plan
from alray.runtime.observer import Observer
from alray.runtime.options import Finished, Options
from alray.studies.folder import StudyFolder
from alray.studies.outcome import divergence, first_reached, times
from alray.studies.records import TrialRecord, TrialStatus

OF_THE_MACHINE = (SystemFault, StageError, ChannelError)
"""What a run may raise that says nothing of the settings of a trial. An error that a run ended with is judged in
`_ended`: out of memory, for example, is a result."""


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
