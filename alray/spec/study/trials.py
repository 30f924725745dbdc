"""The trials of a study, numbered in the same way at every start.

Random settings are a function of (seed, point, index). Those of Optuna are not known before their trial starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alray.seeds import derive_seed
from alray.spec.study.points import Point, Setting, merged
from alray.spec.study.section import Search, Study

_SEEDS = 2.0**63
"""Number of seeds that `derive_seed` can return."""


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    number: its place among all trials. index: which settings of the search these are; 0 without a search. values: these
    settings; empty as long as Optuna has not proposed them. overrides: as `alray run BASE` takes them.
    """

    number: int
    point: Point
    index: int
    seed: int
    values: Mapping[str, Any]
    overrides: tuple[str, ...]

    @property
    def label(self) -> str:
        """What distinguishes this trial, in one line."""
        drawn = [
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in self.values.items()
        ]
        return ", ".join(filter(None, [self.point.label, *drawn, f"seed={self.seed}"]))


def trials_of(study: Study, points: Sequence[Point], seeds: Sequence[int]) -> Iterator[Trial]:
    """Every trial in order: point by point, then by the settings of the search, then by seed.

    seeds: the seed of the spec at each point.
    """
    search, number = study.search, 0
    for point, seed in zip(points, seeds, strict=True):
        for index in range(search.trials if search is not None else 1):
            values = drawn_values(search, seed, point, index) if search and search.kind == "random" else {}
            for repeat in range(study.repeats):
                yield _trial(number, point, index, seed + repeat, values)
                number += 1


def with_values(trial: Trial, values: Mapping[str, Any]) -> Trial:
    """The trial with these settings of the search."""
    return _trial(trial.number, trial.point, trial.index, trial.seed, values)


def _trial(number: int, point: Point, index: int, seed: int, values: Mapping[str, Any]) -> Trial:
    searched = [Setting(key, value, ("search", "space", key)) for key, value in values.items()]
    settings = merged(point.settings, searched, [Setting("seed", seed, ("repeats",))])
    return Trial(number, point, index, seed, values, tuple(setting.override for setting in settings))


def drawn_values(search: Search, seed: int, point: Point, index: int) -> dict[str, Any]:
    """The settings number `index` of a random search at a point."""
    return {
        key: distribution.at(search_seed(seed, point, index, key) / _SEEDS)
        for key, distribution in search.space.items()
    }


def search_seed(seed: int, point: Point, index: int, *purpose: str) -> int:
    """The seed for the settings number `index` at a point. seed: that of the spec there."""
    place = json.dumps(dict(point.values), sort_keys=True)
    return derive_seed(seed, "search", place, index, *purpose)


def settings_at_the_ends(search: Search) -> Iterator[tuple[Setting, ...]]:
    """Settings that together have every end of every distribution."""
    first = {key: distribution.ends[0] for key, distribution in search.space.items()}
    for key, distribution in search.space.items():
        for end in distribution.ends:
            values = {**first, key: end}
            yield tuple(Setting(name, value, ("search", "space", name)) for name, value in values.items())
