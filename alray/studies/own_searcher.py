"""Settings that a searcher of Ray Tune, or of the user, proposes.

Each point has a searcher for as long as the command runs. A new command asks a new one again for the settings that are
recorded, and tells it how they came out. The records count where it now answers otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from alray.config.study.load import LoadedStudy
from alray.config.study.space import Distribution
from alray.config.study.trials import Trial
from alray.core.errors import RunError
from alray.studies.folder import StudyFolder
from alray.studies.own_classes import StudyClass
from alray.studies.proposals import Proposals, Tried, cost_of
from alray.studies.records import TrialRecord

METRIC, MODE = "cost", "min"
"""The metric that a searcher optimises: the cost of `alray.studies.proposals.cost_of`."""


@dataclass
class _PointSearch:
    """The searcher of a point.

    Attributes:
        indices: the settings that it was asked for.
        others: those of them that are recorded otherwise than it answered.
        reported: those whose outcome it knows.
        budget: the most mini-batches of a trial of which it was told; 0 without a target.
    """

    searcher: Searcher
    indices: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)
    reported: set[int] = field(default_factory=set)
    budget: int = 0


class OwnProposals(Proposals):
    """Gives the trials of a study the settings that the searcher of their point proposes."""

    def __init__(self, loaded: LoadedStudy, folder: StudyFolder, own: StudyClass[Searcher]) -> None:
        super().__init__(loaded, folder)
        self._own = own
        self._searches: dict[int, _PointSearch] = {}  # by point

    def _new(self, trial: Trial, space: Mapping[str, Distribution], tried: Mapping[int, Tried]) -> Mapping[str, Any]:
        """Raises UserCodeError if the searcher raises an error, RunError if it proposes no settings of the space."""
        point = trial.point.number
        if point not in self._searches:
            self._searches[point] = _PointSearch(self._own.make())
            with self._own.doing("set_search_properties"):
                self._searches[point].searcher.set_search_properties(METRIC, MODE, of_tune(space))
        search = self._searches[point]
        for index, (values, records) in tried.items():
            if index not in search.indices and self._suggested(search, index) != values:
                search.others.add(index)
            ended = [record for record in records if record is not None]
            if index not in search.reported and len(ended) == len(records):
                self._tell(search, index, values, ended)
        settings = self._suggested(search, trial.index)
        self._require_settings(settings, space)
        return dict(settings)

    def _suggested(self, search: _PointSearch, index: int) -> Any:
        """Return the searcher's proposal, in the types that JSON has."""
        search.indices.add(index)
        with self._own.doing("suggest"):
            settings = search.searcher.suggest(_name(index))
            return json.loads(json.dumps(settings, default=lambda value: value.item()))  # `item`: of numpy's numbers

    def _tell(
        self, search: _PointSearch, index: int, values: Mapping[str, Any], records: Sequence[TrialRecord]
    ) -> None:
        """Tell the searcher how settings came out: the mean cost of their seeds, or that all of them failed."""
        if self._loaded.study.target is not None:
            search.budget = max(
                [search.budget, *(record.summary.steps for record in records if record.summary is not None)]
            )
        costs = [cost_of(record, search.budget) for record in records if record.status != "failed"]
        search.reported.add(index)
        result = {METRIC: fmean(costs), "config": dict(values)} if costs else None
        takes_others = type(search.searcher).add_evaluated_point is not Searcher.add_evaluated_point
        if index in search.others and takes_others:  # it never proposed these: the trial of what it did is none
            with self._own.doing("add_evaluated_point"):
                if result is not None:
                    search.searcher.add_evaluated_point(dict(values), result[METRIC])
            result = None
        with self._own.doing("on_trial_complete"):
            search.searcher.on_trial_complete(_name(index), result=result, error=result is None)

    def _require_settings(self, proposed: Any, space: Mapping[str, Distribution]) -> None:
        message = None
        if not isinstance(proposed, dict):
            message = f"proposed {proposed!r} instead of settings"
        elif proposed.keys() != space.keys():
            message = f"proposed values for {sorted(proposed)}, and the space has {sorted(space)}"
        else:
            outside = [key for key, distribution in space.items() if not distribution.has(proposed[key])]
            if outside:
                message = f"proposed {proposed[outside[0]]!r} for {outside[0]}, which is outside of its range"
        if message is not None:
            hint = "`suggest` returns a value of its range for each key of `search.space`"
            raise RunError(f"{self._own.what} {message}", key=self._own.key, hint=hint)


def _name(index: int) -> str:
    return f"{index:04d}"


def of_tune(space: Mapping[str, Distribution]) -> dict[str, Any]:
    """The space in the distributions of Ray Tune. It has none for `one_minus_loguniform`, which a check refuses."""
    found: dict[str, Any] = {}
    for key, distribution in space.items():
        if distribution.choice is not None:
            found[key] = tune.choice(list(distribution.choice))
        elif distribution.integers is not None:
            first, last = distribution.integers
            found[key] = tune.randint(first, last + 1)
        elif distribution.loguniform is not None:
            found[key] = tune.loguniform(*distribution.loguniform)
        else:
            assert distribution.uniform is not None
            found[key] = tune.uniform(*distribution.uniform)
    return found
