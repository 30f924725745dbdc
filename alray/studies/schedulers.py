"""Trial schedulers of Ray Tune, one for each point of a study."""

from __future__ import annotations

from collections.abc import Callable
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
