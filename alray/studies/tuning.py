"""Trials as a Ray Tune experiment.

Tune gets the numbers of the trials that have not ended, and holds nothing that a resume needs: a resume is a new
experiment. A trial of one stage of one replica runs in the trial's process. Any other runs in the placement group that
Tune makes for it. Processes are used again for the next trial of the same resources.
"""

from __future__ import annotations

import io
import logging
import math
import pickle
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.exceptions import GetTimeoutError, OutOfMemoryError, RayActorError, RayTaskError
from ray.tune import Callback, FailureConfig, PlacementGroupFactory, Stopper
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from alray.config.objects import NO_OBJECTS
from alray.config.sections.spec import Spec
from alray.config.study.section import Asha
from alray.config.study.trials import with_values
from alray.core.errors import AlrayError, DiskFault, StageError
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import EvaluationRecord
from alray.core.system_errors import system_faults
from alray.runtime.cluster.nodes import Bundle, given_gpus
from alray.runtime.cluster.placement import ray_bundle
from alray.runtime.local_ray.head import end_leading_processes
from alray.runtime.runner.engines import stage_bundles
from alray.studies.records import TrialRecord, TrialStatus
from alray.studies.trial import OF_THE_MACHINE, TrialOrder, prepare_process, run_trial

Propose = Callable[[int], Mapping[str, Any]]
"""Gives the settings of a trial, by its number, when it is about to start."""
End = TrialRecord | tuple[TrialStatus, str]
"""The record of a trial; or its status and the reason, where it did not come to make one."""
NUMBER, RECORD = "trial", "record"
"""Keys of a trial's configuration and of its last result: its number, and its record as JSON."""
METRIC, MODE = "validation", "max"
"""The metric that compares trials: the accuracy on the validation set, or the metric of another task; of one whose
lowest value is the best, its negative."""
_ENDLESS = 10**15  # samples


@dataclass(frozen=True)
class TrialListener:
    """Hears of the trials of a study.

    Attributes:
        again: takes the number of a trial that runs again, and why.
        ended: takes the number of a trial that has ended, how it did, and the most trials that ran at once so far.
        note: takes a line for the user.
        stop_requested: whether the study is to stop.
    """

    again: Callable[[int, str], None]
    ended: Callable[[int, End, int], None]
    note: Callable[[str], None]
    stop_requested: Callable[[], bool] = lambda: False


_UNTOLD_S = 20.0
"""Seconds without a new trial before the study prints a note: Ray starts processes in that time."""


def runs_in_one_process(spec: Spec) -> bool:
    """Whether a trial has a single stage of a single replica."""
    return spec.pipeline.stages * spec.replicas.count == 1


def trial_resources(spec: Spec) -> PlacementGroupFactory:
    """The placement group of a trial: one bundle for each stage, after an empty one for the trial's process unless
    the one stage runs there."""
    bundles = [ray_bundle(bundle) for bundle in stage_bundles(spec)]
    own: list[Bundle] = [] if runs_in_one_process(spec) else [{}]
    labels = dict(spec.resources.labels)
    selectors = {"bundle_label_selector": [labels] * len(bundles)} if labels else {}
    return PlacementGroupFactory([*own, *bundles], strategy="PACK", **selectors)


def number_of(trial: Any) -> int:
    """The number of a trial of Ray Tune."""
    return int(trial.custom_trial_name)


class AshaPerPoint(FIFOScheduler):
    """ASHA among the trials of each point: those of other points, with other batch sizes say, are no measure."""

    def __init__(self, asha: Asha, point_of: Callable[[int], int]) -> None:
        """
        Args:
            point_of: the number of a trial's point.
        """
        super().__init__()
        self._asha = asha
        self._point_of = point_of
        self._schedulers: dict[int, AsyncHyperBandScheduler] = {}

    def _among_its_point(self, trial: Any) -> AsyncHyperBandScheduler:
        """The scheduler of this trial and of the others of its point."""
        point = self._point_of(number_of(trial))
        if point not in self._schedulers:
            self._schedulers[point] = AsyncHyperBandScheduler(
                time_attr="samples",
                metric=METRIC,
                mode=MODE,
                max_t=_ENDLESS,
                grace_period=self._asha.grace_samples,
                reduction_factor=self._asha.reduction_factor,
                stop_last_trials=False,
            )
        return self._schedulers[point]

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._among_its_point(trial).on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if RECORD in result:  # the run has come to its end: there is nothing to decide
            return str(TrialScheduler.CONTINUE)
        return str(self._among_its_point(trial).on_trial_result(tune_controller, trial, result))

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self._among_its_point(trial).on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        self._among_its_point(trial).on_trial_remove(tune_controller, trial)


class _Watch(Callback, Stopper):
    """Tells of trials that end or begin again, in whatever way, and of a long time in which none starts.

    It stops the study where the disk is full, because every further trial would meet the same, and where no settings
    can be proposed.

    fault: why it stopped the study; None if it did not.
    """

    def __init__(self, max_failures: Mapping[int, int], listener: TrialListener) -> None:
        """
        Args:
            max_failures: how often each trial may run again, by its number.
        """
        self._at_once = 1
        self._max_failures = max_failures
        self._listener = listener
        self._tell_s = time.monotonic() + _UNTOLD_S
        self._out = sys.stdout  # before `_silent`: a callback of the user may print
        self.fault: AlrayError | None = None

    def failed(self, fault: AlrayError) -> None:
        """Stop the study. The first fault is the cause to report."""
        self.fault = self.fault or fault

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks to restore an experiment; alray restores none."""
        return {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self.fault is not None or self._listener.stop_requested()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        trial.max_failures = self._max_failures[number_of(trial)]

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        running = sum(trial.status == "RUNNING" for trial in trials)
        self._at_once = max(self._at_once, running)
        if running:
            self._tell_s = time.monotonic() + _UNTOLD_S
        elif time.monotonic() > self._tell_s:
            self._listener.note(
                f"no trial has started for {_UNTOLD_S:.0f} s: waiting until the cluster has room for one"
            )
            self._tell_s = math.inf

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        last = trial.last_result
        if RECORD in last:
            end: End = TrialRecord.model_validate_json(last[RECORD])
        elif self.stop_all():  # a resume runs it again
            return
        else:
            end = "stopped", f"the trial scheduler stopped it after {last.get('steps', 0):,} mini-batches"
        self._tell(trial, end)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        fault = _fault_of(trial)
        if isinstance(fault, DiskFault):
            self.fault = fault
        else:
            self._listener.again(number_of(trial), _reason(fault))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        fault = _fault_of(trial)
        if isinstance(fault, DiskFault):
            self.fault = fault
        else:
            of_the_machine = isinstance(fault, (RayActorError, *OF_THE_MACHINE))
            self._tell(trial, ("lost" if of_the_machine else "failed", _reason(fault)))

    def _tell(self, trial: Any, end: End) -> None:
        try:
            with system_faults(), redirect_stdout(self._out):
                self._listener.ended(number_of(trial), end, self._at_once)
        except DiskFault as fault:  # Tune would take it for an error of the trial
            self.fault = fault


def _fault_of(trial: Any) -> BaseException:
    """Why the process of a trial, or the trial in it, ended. Not `get_pickled_error`: it reads the copy of this file
    that Tune makes later."""
    if trial.pickled_error_file is None:  # of Ray, as where it ended a process because little memory was left
        *_, last = (
            Path(trial.error_file).read_text(encoding="utf-8").split("Failure # ")
        )  # a line with the date is first
        return StageError(f"Ray could not run the trial: {last.splitlines()[1].partition('. ')[0]}")
    fault: BaseException = pickle.loads(Path(trial.pickled_error_file).read_bytes())
    return fault.cause if isinstance(fault, RayTaskError) else fault


def _reason(fault: BaseException) -> str:
    """One line for the user. Ray's text on a process that died continues with guesses."""
    if isinstance(fault, RayActorError):
        return f"the process of the trial ended: {str(fault).strip().splitlines()[-1].partition('. ')[0].rstrip('.')}"
    return str(fault) if isinstance(fault, OF_THE_MACHINE) else f"{type(fault).__name__}: {fault}"


class _InOrder(Searcher):
    """Gives Tune the trials in order, each with the settings that are proposed when Tune asks for it."""

    def __init__(self, numbers: Sequence[int], propose: Propose, failed: Callable[[AlrayError], None]) -> None:
        """
        Args:
            failed: takes an error of the proposals, such as a damaged record of a trial.
        """
        super().__init__()
        self._left = iter(numbers)
        self._propose = propose
        self._failed = failed

    def suggest(self, trial_id: str) -> Any:
        number = next(self._left, None)
        if number is None:
            return self.FINISHED
        try:
            return {NUMBER: number, **self._propose(number)}
        except AlrayError as fault:  # Tune would wrap it
            self._failed(fault)
            return self.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """The records of the trials tell."""

    def save(self, checkpoint_path: str) -> None:
        """alray restores no experiment of Tune."""

    def restore(self, checkpoint_path: str) -> None:
        """alray restores no experiment of Tune."""


@contextmanager
def _silent() -> Iterator[None]:
    """Keep what Tune prints and logs from the user: `_Watch` tells what matters, and what ends the study is raised."""
    loggers = [logging.getLogger(name) for name in ("ray.tune", "ray.train")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _emptied(folder: Path) -> Iterator[None]:
    """Delete a folder before and after the block; an earlier process may have been killed."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _report(evaluation: EvaluationRecord) -> None:
    """Let the trial scheduler decide whether this trial continues; if not, Tune raises SystemExit.

    A metric that is None would end the whole experiment.
    """
    if evaluation.validation is not None:
        sign = -1.0 if METRICS[evaluation.metric].lowest else 1.0
        tune.report({"samples": evaluation.samples, METRIC: sign * evaluation.validation, "steps": evaluation.step})


def _run_config(storage: Path, watch: _Watch, max_failures: int) -> tune.RunConfig:
    """
    Args:
        max_failures: how often a trial may run again whose process dies while it starts, before `watch` hears of it.
    """
    failures = FailureConfig(max_failures=max_failures)
    return tune.RunConfig(
        name="study", storage_path=str(storage), verbose=0, callbacks=[watch], stop=watch, failure_config=failures
    )


def run_trials(
    orders: Sequence[tuple[TrialOrder, Spec]],
    *,
    storage: Path,
    max_concurrent: int | None,
    asha: Asha | None,
    propose: Propose | None,
    listener: TrialListener,
) -> None:
    """Run the trials on the connected cluster, in an environment made for Tune. Returns when all have ended, or at the
    first Ctrl-C.

    A trial that the machine ended runs again, at most `run.max_failures` times. Raises DiskFault, and stops the trials
    that run, where the disk is full; and CheckpointError where the record of a trial is damaged.

    Args:
        storage: a folder for what Tune writes; it is deleted.
        asha: stops bad trials of each point; None: every trial runs to its end.
        propose: gives the settings of each trial; None: they are known.
    """
    by_number = {order.trial.number: order for order, _ in orders}
    max_failures = {order.trial.number: spec.run.max_failures for order, spec in orders}
    resources = {order.trial.number: trial_resources(spec) for order, spec in orders}
    numbers = sorted(by_number)
    objects = ray.put(orders[0][0].objects)  # the same in all: Ray's object store has them once
    by_number = {number: replace(order, objects=NO_OBJECTS) for number, order in by_number.items()}

    def trainable(config: dict[str, Any]) -> dict[str, Any]:
        order = replace(by_number[int(tune.get_context().get_trial_name())], objects=ray.get(objects))
        if values := {key: value for key, value in config.items() if key != NUMBER}:
            order = replace(order, trial=with_values(order.trial, values))
        from alray.runtime.device.devices import keep_to  # imports torch

        keep_to(given_gpus())
        if order.one_process:
            prepare_process()
        record = run_trial(order) if asha is None else run_trial(order, _report)
        return {RECORD: record.model_dump_json()}

    def name(trial: Any) -> str:
        return f"{trial.config[NUMBER]:04d}"

    watch = _Watch(max_failures, listener)
    point_of = {number: order.trial.point.number for number, order in by_number.items()}
    with _emptied(storage), _silent(), _faults_of_ray():
        tune.Tuner(
            tune.with_resources(trainable, lambda config: resources[config[NUMBER]]),
            param_space={NUMBER: tune.grid_search(numbers)} if propose is None else None,
            tune_config=tune.TuneConfig(
                search_alg=None if propose is None else _InOrder(numbers, propose, watch.failed),
                num_samples=1 if propose is None else len(numbers),
                max_concurrent_trials=max_concurrent,
                scheduler=None if asha is None else AshaPerPoint(asha, point_of.__getitem__),
                reuse_actors=True,
                trial_name_creator=name,
                trial_dirname_creator=name,
            ),
            run_config=_run_config(storage, watch, max(max_failures.values())),
        ).fit()
    if watch.fault is not None:
        raise watch.fault


@contextmanager
def _faults_of_ray() -> Iterator[None]:
    """Raise StageError where Ray Tune gives up: a call to the GCS has no answer in time, which also ends a Ray that
    alray started; or Ray has ended a trial because its machine had little memory left, which Tune does not expect."""
    try:
        yield
    except GetTimeoutError as error:
        end_leading_processes()
        hint = "look at the machine with `alray doctor`"
        raise StageError("Ray did not answer Ray Tune in time", hint=hint) from error
    except RuntimeError as error:
        if not isinstance(error.__cause__, OutOfMemoryError):
            raise
        raise StageError(
            "Ray ended a trial, because its machine had little memory left",
            hint="end other programs, or run fewer trials at a time by `max_concurrent=1`; `alray study --resume` goes "
            "on",
        ) from error
