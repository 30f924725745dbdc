"""Optuna's proposals: settings like those that came out well, by its sampler TPE (Bergstra et al. 2011, section 4).

A proposal is a function of (seed, point, index), of the trials of the point that have ended, and of the settings that
are being tried. Nothing of Optuna's is kept: its study is made anew from alray's records for every proposal. So a study
that was killed continues as if it had not been.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from alray.config.study.load import LoadedStudy
from alray.config.study.space import Distribution
from alray.config.study.trials import Trial, search_seed, with_values
from alray.core.metric import ACCURACY
from alray.studies.folder import StudyFolder
from alray.studies.records import TrialRecord

_SEEDS = 2**32
"""Number of seeds that Optuna's sampler takes."""

Tried = tuple[Mapping[str, Any], Sequence[TrialRecord | None]]
"""Settings, and the record of each of their seeds; None for one that has not ended."""


class Proposals:
    """Gives the trials of a study their settings, each when it starts."""

    def __init__(self, loaded: LoadedStudy, folder: StudyFolder) -> None:
        self._loaded = loaded
        self._folder = folder
        self._values: dict[tuple[int, int], Mapping[str, Any]] = {}  # (point, index) -> settings

    def with_settings(self, trial: Trial) -> Trial:
        """The trial with its settings: those of its other seeds if there are any, otherwise new ones."""
        study, point = self._loaded.study, trial.point.number
        assert study.search is not None
        outcomes: dict[int, list[TrialRecord | None]] = {}
        for other in self._loaded.trials:
            if other.point is trial.point:
                record = self._folder.record(other.number)
                outcomes.setdefault(other.index, []).append(record)
                if record is not None:
                    self._values[point, other.index] = record.values
        if (point, trial.index) not in self._values:
            tried = {
                index: (self._values[point, index], records)
                for index, records in outcomes.items()
                if (point, index) in self._values
            }
            self._values[point, trial.index] = self._new(trial, study.search.space_at(trial.point.values), tried)
        return with_values(trial, self._values[point, trial.index])

    def _new(self, trial: Trial, space: Mapping[str, Distribution], tried: Mapping[int, Tried]) -> Mapping[str, Any]:
        """New settings for a trial.

        Args:
            tried: those of its point by their index, in order.
        """
        seed = search_seed(self._loaded.specs[trial.point.number].seed, trial.point, trial.index)
        return proposed(space, list(tried.values()), self._loaded.study.target is not None, seed)


def proposed(space: Mapping[str, Distribution], tried: Sequence[Tried], target: bool, seed: int) -> dict[str, Any]:
    """The settings to try next.

    Args:
        tried: those of the same point, in the order of their index.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed % _SEEDS))
    distributions = {key: _of_optuna(distribution) for key, distribution in space.items()}
    steps = [record.summary.steps for _, records in tried for record in records if record and record.summary]
    budget = max(steps, default=0) if target else 0
    for values, records in tried:
        state, cost = _outcome(records, budget)
        params = {key: _to_optuna(distribution, values[key]) for key, distribution in space.items()}
        study.add_trial(optuna.trial.create_trial(state=state, value=cost, params=params, distributions=distributions))
    params = study.ask(distributions).params
    return {key: _from_optuna(distribution, params[key]) for key, distribution in space.items()}


def cost_of(record: TrialRecord, budget: int) -> float:
    """The cost that Optuna minimises: the mini-batches to the target. Where it was not reached, or there is none, these
    are the budget + 1 - accuracy; so any trial that reaches it is better than all that do not. Of a metric that does
    not lie in 0..1, the arc tangent brings every value there. It keeps their order, and none is worse than a trial that
    diverged.

    The accuracy is the best one on the validation set; of a trial that diverged it is 0.

    Args:
        budget: the most mini-batches that a trial of the point has run; 0 without a target.
    """
    if record.reached is not None:
        return float(record.reached.step)
    best = record.summary.best if record.summary is not None else None
    if best is None or best.validation is None or record.status == "diverged":
        return budget + 1.0
    metric = record.summary.measures if record.summary is not None else ACCURACY
    if metric.share:
        return budget + 1.0 - best.validation
    return budget + 0.5 + math.atan(best.validation if metric.lowest else -best.validation) / math.pi


def _outcome(records: Sequence[TrialRecord | None], budget: int) -> tuple[TrialState, float | None]:
    """How settings came out: the mean over their seeds, without those that failed."""
    ended = [record for record in records if record is not None]
    if len(ended) < len(records):
        return TrialState.RUNNING, None
    if any(record.status == "stopped" for record in ended):
        return TrialState.PRUNED, None
    costs = [cost_of(record, budget) for record in ended if record.status != "failed"]
    return (TrialState.COMPLETE, fmean(costs)) if costs else (TrialState.FAIL, None)


def _of_optuna(distribution: Distribution) -> Any:
    """The distribution in Optuna's terms: of a choice the index, of `one_minus_loguniform` 1 - value."""
    if distribution.choice is not None:
        return CategoricalDistribution(tuple(range(len(distribution.choice))))
    if distribution.integers is not None:
        return IntDistribution(*distribution.integers)
    if distribution.one_minus_loguniform is not None:
        low, high = distribution.one_minus_loguniform
        return FloatDistribution(1.0 - high, 1.0 - low, log=True)
    if distribution.loguniform is not None:
        return FloatDistribution(*distribution.loguniform, log=True)
    assert distribution.uniform is not None
    return FloatDistribution(*distribution.uniform)


def _from_optuna(distribution: Distribution, param: Any) -> Any:
    """The value of a key for what Optuna gives."""
    if distribution.choice is not None:
        return distribution.choice[param]
    if distribution.one_minus_loguniform is not None:
        return _within(distribution.one_minus_loguniform, 1.0 - param)
    return param


def _to_optuna(distribution: Distribution, value: Any) -> Any:
    """Return Optuna's value for the value of a key."""
    if distribution.choice is not None:
        return distribution.choice.index(value)
    if distribution.one_minus_loguniform is not None:
        low, high = distribution.one_minus_loguniform
        return _within((1.0 - high, 1.0 - low), 1.0 - value)
    return value


def _within(bounds: tuple[float, float], value: float) -> float:
    """The value without what rounding has added beyond the bounds."""
    return min(max(value, bounds[0]), bounds[1])
