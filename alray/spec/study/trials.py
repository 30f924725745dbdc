"""The trials of a study. Each is a function of (seed, point, index), so that every start of the study has the same."""

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

    number: its place among all trials. index: which settings of the search these are; 0 without a search. values: the
    settings that were drawn. overrides: as `alray run BASE` takes them.
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
    number = 0
    for point, seed in zip(points, seeds, strict=True):
        for index in range(study.search.trials if study.search is not None else 1):
            drawn = drawn_settings(study.search, seed, point, index) if study.search is not None else ()
            for repeat in range(study.repeats):
                fresh = Setting("seed", seed + repeat, ("repeats",))
                settings = merged(point.settings, drawn, [fresh])
                values = {setting.key: setting.value for setting in drawn}
                overrides = tuple(setting.override for setting in settings)
                yield Trial(number, point, index, seed + repeat, values, overrides)
                number += 1


def drawn_settings(search: Search, seed: int, point: Point, index: int) -> tuple[Setting, ...]:
    """The settings number `index` of the search at a point."""
    place = json.dumps(dict(point.values), sort_keys=True)
    settings = []
    for key, distribution in search.space.items():
        share = derive_seed(seed, "search", place, index, key) / _SEEDS
        settings.append(Setting(key, distribution.at(share), ("search", "space", key)))
    return tuple(settings)


def settings_at_the_ends(search: Search) -> Iterator[tuple[Setting, ...]]:
    """Settings that together have every end of every distribution."""
    first = {key: distribution.ends[0] for key, distribution in search.space.items()}
    for key, distribution in search.space.items():
        for end in distribution.ends:
            values = {**first, key: end}
            yield tuple(Setting(name, value, ("search", "space", name)) for name, value in values.items())
