"""The trials of a study, numbered in the same way at every start.

Random settings are a function of (seed, point, index). Those of Optuna are not known before their trial starts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alray.config.study.points import Point, Setting, merged
from alray.config.study.section import VARIANT, Search, Study
from alray.core.counting import setting_text
from alray.core.randomness.seeds import derive_seed


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Attributes:
        number: its index among all trials.
        index: which settings of the search these are; 0 without a search.
        values: these settings; empty as long as Optuna has not proposed them.
        session: which start of the study it belongs to, from 0; tables and pages count from 1.
        overrides: as `alray run BASE` takes them.
    """

    number: int
    point: Point
    index: int
    seed: int
    values: Mapping[str, Any]
    overrides: tuple[str, ...]
    session: int = 0

    @property
    def label(self) -> str:
        """The settings that distinguish this trial, in one line."""
        drawn = [
            f"{key}={setting_text(value, 4) if isinstance(value, float) else value}"
            for key, value in self.values.items()
        ]
        session = [f"session={self.session + 1}"] if self.session else []
        return ", ".join(filter(None, [self.point.label, *drawn, f"seed={self.seed}", *session]))


def trials_of(study: Study, points: Sequence[Point], seeds: Sequence[int]) -> Iterator[Trial]:
    """Every trial in order: point by point, then by the settings of the search, then by seed.

    A study of several sessions runs its points in turns within each session, a seed a turn, forwards and backwards
    (A B B A): what changes evenly in a session changes all points alike.

    Args:
        seeds: the seed of the spec at each point.
    """
    if study.sessions > 1:
        yield from _in_turns(study, list(zip(points, seeds, strict=True)))
        return
    search, number = study.search, 0
    for point, seed in zip(points, seeds, strict=True):
        settings: list[dict[str, Any]] = [{}] * (search.trials if search is not None else 1)
        if search is not None and search.kind == "random":
            settings = drawn_settings(search, seed, point)
        for index, values in enumerate(settings):
            for repeat in range(study.repeats):
                yield _trial(number, point, index, seed + repeat, values)
                number += 1


def _in_turns(study: Study, seeded: Sequence[tuple[Point, int]]) -> Iterator[Trial]:
    number = 0
    for session in range(study.sessions):
        for repeat in range(study.repeats):
            for point, seed in seeded if (session * study.repeats + repeat) % 2 == 0 else reversed(seeded):
                yield replace(_trial(number, point, 0, seed + repeat, {}), session=session)
                number += 1


def with_values(trial: Trial, values: Mapping[str, Any]) -> Trial:
    """The trial with these settings of the search."""
    return _trial(trial.number, trial.point, trial.index, trial.seed, values)


def _trial(number: int, point: Point, index: int, seed: int, values: Mapping[str, Any]) -> Trial:
    searched = [Setting(key, value, ("search",)) for key, value in values.items()]
    settings = merged(point.settings, searched, [Setting("seed", seed, ("repeats",))])
    return Trial(number, point, index, seed, values, tuple(setting.override for setting in settings))


def drawn_settings(search: Search, seed: int, point: Point) -> list[dict[str, Any]]:
    """The settings of a random search at a point. With more trials they begin with the same ones.

    They are quasi-random (Bousquet et al. 2017): a few of them cover the space evenly. They follow the Halton sequence,
    scrambled by the seed (Owen 2017).
    """
    from scipy.stats import qmc  # takes a second

    space = search.space_at(point.values)
    shares = qmc.Halton(len(space), rng=search_seed(seed, point, *space)).random(search.trials)
    return [{key: space[key].at(share) for key, share in zip(space, row, strict=True)} for row in shares.tolist()]


def search_seed(seed: int, point: Point, *purpose: str | int) -> int:
    """A seed for the search at a point.

    Args:
        seed: that of the spec there.
    """
    return derive_seed(seed, "search", json.dumps(dict(point.values), sort_keys=True), *purpose)


def settings_at_the_ends(search: Search, point: Point) -> Iterator[tuple[Setting, ...]]:
    """Settings that together have every end of every distribution at a point."""
    space = search.space_at(point.values)
    first = {key: distribution.ends[0] for key, distribution in space.items()}
    for key, distribution in space.items():
        for end in distribution.ends:
            yield _settings(search, point, {**first, key: end})


def _settings(search: Search, point: Point, values: Mapping[str, Any]) -> tuple[Setting, ...]:
    """The values with the paths in the study that set them."""
    variant = str(point.values.get(VARIANT))
    own = search.variants.get(variant, {})
    return tuple(
        Setting(key, value, ("search", "variants", variant, key) if key in own else ("search", "space", key))
        for key, value in values.items()
    )
