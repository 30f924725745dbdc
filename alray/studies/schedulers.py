"""Trial schedulers of Ray Tune, one for each group of trials that are compared with each other."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from alray.config.study.section import Asha

NUMBER, RECORD = "trial", "record"
"""Keys of a trial's configuration and of its last result: its number, and its record as JSON."""
METRIC, MODE = "validation", "max"
"""The metric that compares trials: the accuracy on the validation set, or the metric of another task; of one whose
lowest value is the best, its negative."""
_ENDLESS = 10**15  # samples


def number_of(trial: Any) -> int:
    """The number of a trial of Ray Tune."""
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

    def __init__(self, make: Callable[[], TrialScheduler], group_of: Callable[[int], Hashable]) -> None:
        """
        Args:
            group_of: of a trial, by its number.
        """
        super().__init__()
        self._make = make
        self._group_of = group_of
        self._schedulers: dict[Hashable, TrialScheduler] = {}

    def _view(self, controller: Any, group: Hashable) -> Any:
        return _GroupController(controller, lambda trial: self._group_of(number_of(trial)) == group)

    def _pass(self, method: str, controller: Any, trial: Any, *result: Any) -> Any:
        """Call a method of the scheduler of a trial."""
        group = self._group_of(number_of(trial))
        if group not in self._schedulers:
            self._schedulers[group] = self._make()
        return getattr(self._schedulers[group], method)(self._view(controller, group), trial, *result)

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._pass("on_trial_add", tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        self._pass("on_trial_error", tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if RECORD in result:  # the run has come to its end: there is nothing to decide
            return str(TrialScheduler.CONTINUE)
        return str(self._pass("on_trial_result", tune_controller, trial, result))

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        self._pass("on_trial_complete", tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        self._pass("on_trial_remove", tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        asked = (
            scheduler.choose_trial_to_run(self._view(tune_controller, group))
            for group, scheduler in self._schedulers.items()
        )
        return next((trial for trial in asked if trial is not None), None)


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
