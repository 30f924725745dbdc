"""One trial: a run in the process that Ray Tune started for it, which a trial of several stages only drives.

Divergence, a refusal and an error of a user's code are results. A failure of the machine is not: it is raised, and the
trial runs again.
"""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from alray.config.study.trials import Trial, with_values
from alray.config.user_code import UserCode
from alray.core.errors import AlrayError, ChannelError, NodesLost, NonFiniteLoss, StageError, SystemFault
from alray.core.run_folder.records import CheckpointRecord, EvaluationRecord, Exit, Record, StepRecord, effective, read
from alray.core.system_errors import system_faults
from alray.orchestrate import resume_run, run_spec
from alray.planning.prediction.plan import Plan
from alray.runtime.options import Finished, Options
from alray.runtime.stage.telemetry import StageStatus
from alray.studies.folder import StudyFolder
from alray.studies.outcome import divergence, first_reached, times
from alray.studies.records import Segment, TrialRecord, TrialStatus

if TYPE_CHECKING:
    from alray.studies.continuation import Continuation

OF_THE_MACHINE = (SystemFault, StageError, ChannelError)
"""Errors that say nothing of the settings of a trial."""


@dataclass(frozen=True)
class TrialOrder:
    """The instructions for a process that runs a trial.

    Attributes:
        one_process: the trial has one stage, which runs in the trial's process.
        keeps_checkpoints: they are not deleted at the end.
        target: the metric of the validation set to reach; None: none.
        thresholds: the confidences for which early exits are measured; None: they are not.
        saves_every: the interval of the checkpoints that a trial scheduler needs, where the spec asks for none.
        command: what the user typed, where the order is made.
    """

    trial: Trial
    folder: StudyFolder
    base: Path
    one_process: bool
    keeps_checkpoints: bool
    target: float | None
    thresholds: tuple[float, ...] | None
    allow_code: bool
    saves_every: str | None = None
    command: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))


class Unwatched:
    """The observer of a run that nobody watches, and that nobody interrupts."""

    count = 0

    def statuses(self, statuses: Sequence[StageStatus]) -> None:
        """Nobody watches."""

    def planned(self, plan: Plan) -> None:
        """Nobody watches."""

    def record(self, record: Record) -> None:
        """Nobody watches."""

    def note(self, message: str) -> None:
        """Nobody watches."""

    def doing(self, what: str) -> None:
        """Nobody watches."""


@dataclass
class _Listening(Unwatched):
    """Passes evaluations on.

    Attributes:
        marks: only those with a checkpoint after the same mini-batch, and each of them once the run has gone on: the
            last one, with which a run ends, is not passed on.
        heard: mini-batches before the last evaluation that was.
    """

    evaluated: Callable[[EvaluationRecord], None]
    marks: bool = False
    heard: int = 0
    _waiting: list[EvaluationRecord] = field(default_factory=list)
    _saved: set[int] = field(default_factory=set)
    _step: int = 0

    def record(self, record: Record) -> None:
        if isinstance(record, EvaluationRecord):
            if not self.marks:
                self.evaluated(record)
            elif record.step > self.heard:  # after a failure, a run makes some of them again
                self.heard = record.step
                self._waiting.append(record)
        elif isinstance(record, CheckpointRecord):
            self._saved.add(record.step)
        elif isinstance(record, StepRecord):
            self._step = record.step
        while self._waiting and self._waiting[0].step in self._saved and self._waiting[0].step < self._step:
            self.evaluated(self._waiting.pop(0))


@cache
def prepare_process() -> None:
    """Make this process one that runs trials of a study and nothing else: import what all of them need, and keep data.

    A second call does nothing.
    """
    gc.disable()  # what imports make is no garbage, and to look through it takes a fifth of their time
    import alray.report.make
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


def run_trial(
    order: TrialOrder,
    evaluated: Callable[[EvaluationRecord], None] = lambda record: None,
    continuation: Continuation | None = None,
) -> TrialRecord:
    """Run a trial to its end and keep its record.

    Raises one of OF_THE_MACHINE, without a record, if the trial did not come to its end and may do so if it runs again.

    Args:
        evaluated: is called with every evaluation. If it raises SystemExit the trial stops there, without a record.
        continuation: how a trial begins or continues that its scheduler may pause and change.
    """
    with system_faults():
        record = _run(order, evaluated, continuation)
        if continuation is not None and len(continuation.history) > 1:
            record = record.model_copy(update={"history": continuation.history})
        order.folder.write(record)
    return record


def _run(
    order: TrialOrder, evaluated: Callable[[EvaluationRecord], None], continuation: Continuation | None
) -> TrialRecord:
    run_dir = order.folder.trial_dir(order.trial.number)
    continues = continuation is not None and continuation.mark is not None
    if continuation is not None and continues:
        continuation.take_over()
    else:
        order.folder.clear(order.trial.number)
    options = Options(
        inline=order.one_process,
        run_dir=run_dir,
        allow_code=order.allow_code,
        # A trial whose shapes were known has loaded no code, and so its run folder has no copy to continue with.
        code=UserCode(order.base.parent, allow_elsewhere=order.allow_code) if continues else None,
        pages=False,
        command=order.command,
        study=order.folder.path,
    )
    listening = _Listening(evaluated)
    overrides = list(order.trial.overrides)
    if continuation is not None:
        listening = _Listening(evaluated, marks=True, heard=continuation.step)
        overrides = continuation.overrides
    try:
        if continuation is not None and continues:
            finished = resume_run(
                run_dir, continuation.changes, options, listening, listening, allow_change=continuation.is_changed
            )
        else:
            finished = run_spec(order.base, overrides, options, listening, listening)
    except OF_THE_MACHINE:
        raise
    except AlrayError as error:
        record = record_of(order.trial, "failed", str(error))
    else:
        if isinstance(finished.error, SystemFault | NodesLost):
            raise finished.error
        record = _ended(order, finished, run_dir)
        if order.thresholds is not None and finished.error is None:
            record = record.model_copy(update={"exits": _exits(run_dir, order.thresholds, order.allow_code)})
    if not order.keeps_checkpoints:
        shutil.rmtree(run_dir / "checkpoints", ignore_errors=True)
    return record


def _exits(run_dir: Path, thresholds: Sequence[float], allow_code: bool) -> list[Exit]:
    from alray.inference.early_exit import early_exits
    from alray.inference.network import TrainedNetwork

    return early_exits(TrainedNetwork(run_dir, allow_code=allow_code), thresholds)


def record_of(
    trial: Trial, status: TrialStatus, reason: str | None = None, history: Sequence[Segment] = ()
) -> TrialRecord:
    """The record of a trial without a run.

    Args:
        history: of all settings that it has had.
    """
    if len(history) > 1:
        trial = with_values(trial, history[-1].values)
    return TrialRecord(
        number=trial.number,
        point=dict(trial.point.values),
        index=trial.index,
        values=dict(trial.values),
        seed=trial.seed,
        overrides=list(trial.overrides),
        history=list(history) if len(history) > 1 else [],
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
    return record_of(order.trial, status, reason).model_copy(update=found)
