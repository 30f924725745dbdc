"""Trial schedulers of Ray Tune, one for each group of trials that are compared with each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from alray.config.study.section import Asha
from alray.core.errors import AlrayError, RunError
from alray.studies.own_classes import StudyClass

NUMBER, RECORD = "trial", "record"
"""Keys of a trial's configuration and of its last result: its number, and its record as JSON."""
METRIC, MODE = "validation", "max"
"""The metric that compares trials: the accuracy on the validation set, or the metric of another task; of one whose
lowest value is the best, its negative."""
_ENDLESS = 10**15  # samples
_CONTINUE: str = TrialScheduler.CONTINUE
_DECISIONS = (_CONTINUE, TrialScheduler.PAUSE, TrialScheduler.STOP, TrialScheduler.NOOP)


def number_of(trial: Any) -> int:
    """The number of a trial of Ray Tune. A scheduler may give it the configuration of another trial."""
    return int(trial.custom_trial_name)


class _GroupController:
    """Tune's controller as the scheduler of a group sees it: with the trials of its group only."""

    def __init__(self, controller: Any, is_ours: Callable[[Any], bool]) -> None:
        self._controller = controller
        self._is_ours = is_ours

    def get_trials(self) -> list[Any]:
        return [trial for trial in self._controller.get_trials() if self._is_ours(trial)]

    def get_live_trials(self) -> set[Any]:
        return {trial for trial in self._controller.get_live_trials() if self._is_ours(trial)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._controller, name)


class PerGroup(FIFOScheduler):
    """A separate scheduler for each group of trials."""

    def __init__(
        self,
        make: Callable[[], TrialScheduler],
        group_of: Callable[[int], Hashable],
        doing: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext(),
        failed: Callable[[AlrayError], None] | None = None,
    ) -> None:
        """
        Args:
            group_of: of a trial, by its number.
            doing: is entered around each call of a scheduler.
            failed: takes an error of a scheduler, after which none is asked again; None: it is raised.
        """
        super().__init__()
        self._make = make
        self._group_of = group_of
        self._doing = doing
        self._failed = failed
        self._schedulers: dict[Hashable, TrialScheduler] = {}
        self._has_failed = False

    @contextmanager
    def _guarded(self, doing: str) -> Iterator[None]:
        try:
            with self._doing(doing):
                yield
        except AlrayError as fault:
            if self._failed is None:
                raise
            if not self._has_failed:
                self._failed(fault)
            self._has_failed = True

    def _view(self, controller: Any, group: Hashable) -> Any:
        return _GroupController(controller, lambda trial: self._group_of(number_of(trial)) == group)

    def _pass(self, method: str, controller: Any, trial: Any, *result: Any) -> Any:
        """Call a method of the scheduler of a trial; None if it raises an error, or has."""
        group = self._group_of(number_of(trial))
        with self._guarded(method):
            if self._has_failed:
                return None
            if group not in self._schedulers:
                self._schedulers[group] = self._make()
            return getattr(self._schedulers[group], method)(self._view(controller, group), trial, *result)
        return None

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._pass("on_trial_add", tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        self._pass("on_trial_error", tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if RECORD in result:  # the run has come to its end: there is nothing to decide
            return _CONTINUE
        decision = self._pass("on_trial_result", tune_controller, trial, result)
        if decision in _DECISIONS:
            return str(decision)
        with self._guarded("on_trial_result"):
            if not self._has_failed:
                raise RunError(f"`on_trial_result` of a trial scheduler returned {decision!r}", key="trial_scheduler")
        return _CONTINUE

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self._pass("on_trial_complete", tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        self._pass("on_trial_remove", tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        for group, scheduler in self._schedulers.items():
            with self._guarded("choose_trial_to_run"):
                if self._has_failed:
                    return None
                trial = scheduler.choose_trial_to_run(self._view(tune_controller, group))
                if trial is not None:
                    return trial
        return None


def asha_per_point(asha: Asha, point_of: Callable[[int], int]) -> PerGroup:
    """ASHA among the trials of each point: those of other points, with other batch sizes say, are no measure.

    Args:
        point_of: the number of a trial's point.
    """

    def make() -> TrialScheduler:
        return AsyncHyperBandScheduler(
            time_attr="samples",
            metric=METRIC,
            mode=MODE,
            max_t=_ENDLESS,
            grace_period=asha.grace_samples,
            reduction_factor=asha.reduction_factor,
            stop_last_trials=False,
        )

    return PerGroup(make, point_of)


class OwnPerGroup(PerGroup):
    """A scheduler of the user's class for each group. Configurations have the settings of the trials."""

    def __init__(
        self,
        own: StudyClass[TrialScheduler],
        group_of: Callable[[int], Hashable],
        values_of: Callable[[int], Mapping[str, Any]],
        keys_of: Callable[[int], Collection[str]],
        failed: Callable[[AlrayError], None],
    ) -> None:
        """
        Args:
            values_of: the settings of a trial that are known before it starts.
            keys_of: the keys of its settings.
        """
        super().__init__(self._made, group_of, own.doing, failed)
        self._own = own
        self._values_of = values_of
        self._keys_of = keys_of

    def _made(self) -> TrialScheduler:
        scheduler = self._own.make()
        if not scheduler.set_search_properties(METRIC, MODE):
            message = f"{self._own.what} has a `metric` or `mode`"
            raise RunError(message, key=self._own.key, hint=f"leave them out: alray gives it `{METRIC}` and `{MODE}`")
        return scheduler

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        trial.set_config({**self._values_of(number_of(trial)), **trial.config})
        super().on_trial_add(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        trial = super().choose_trial_to_run(tune_controller)
        if trial is None:
            return None
        with self._guarded("choose_trial_to_run"):
            if other := sorted(trial.config.keys() - {NUMBER, *self._keys_of(number_of(trial))}):
                message = f"{self._own.what} changed `{other[0]}`, which the study does not search"
                raise RunError(message, key=self._own.key, hint="let it change keys of `search.space` only")
            return trial
        return None
