"""The points of a study: every combination of the values of its axes, each with its settings of the base spec."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from alray.config.loading.overrides import override_text
from alray.config.sections.paths import Path
from alray.config.study.section import VARIANT, Study


@dataclass(frozen=True)
class Setting:
    """A key of the base spec with its value, and the path in the study that sets it."""

    key: str
    value: Any
    source: Path

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The parts of the key."""
        return parts_of(self.key)

    @cached_property
    def override(self) -> str:
        """The setting as `alray run` takes it: `optimizer.lr=0.001`."""
        return override_text(self.key, self.value)


NO_CHECKPOINTS = Setting("run.checkpoint", None, ("set",))
"""A trial keeps none unless the study asks for them."""


@dataclass(frozen=True)
class Point:
    """One combination.

    Attributes:
        values: axis -> value, for a variant its name.
    """

    number: int
    values: Mapping[str, Any]
    settings: tuple[Setting, ...]

    @property
    def label(self) -> str:
        """The values in one line; empty for a study without axes."""
        return label_of(self.values)


def label_of(values: Mapping[str, Any]) -> str:
    """The values of a point in one line."""
    return ", ".join(f"{axis}={value_text(value)}" for axis, value in values.items())


def series_label(values: Mapping[str, Any], without: Iterable[str] = ()) -> str:
    """The values of a point, `without` some axes, as a short name of the points that share them, for example
    `al, batch size 32`."""
    left = {axis: value_text(value) for axis, value in values.items() if axis not in set(without)}
    texts = (text if axis == VARIANT else named(axis, text) for axis, text in left.items())
    return ", ".join(texts) or "all points"


_WORDS = {
    "optimizer.lr": "learning rate",
    "data.train_fraction": "share of the training data",
    "method.kind": "method",
    "replicas.count": "replicas",
    "optimizer.kind": "optimizer",
    "seed": "seed",
}


def in_words(key: str) -> str:
    """A key of a spec in words, for figures and tables: `data.batch_size` is `batch size`,
    `model.components.1.repeat` is `repeat of component 1`, and `pipeline.links.0.latency` is `latency of link 0`."""
    *_, listed, index, last = ("", "", *parts_of(key))
    words = _WORDS.get(key, last.replace("_", " "))
    return f"{words} of {listed.removesuffix('s')} {index}" if index.isdigit() else words


def named(key: str, value: str) -> str:
    """A value with its key in words: `batch size 32`, and `repeat of component 1 = 8`, so that the numbers do not run
    together."""
    words = in_words(key)
    return f"{words} = {value}" if words[-1].isdigit() else f"{words} {value}"


def parts_of(key: str) -> tuple[str, ...]:
    """The parts of a key, as an override or a message writes it: `model.components[1].repeat`."""
    return tuple(re.findall(r"[^.\[\]]+", key))


def value_text(value: Any) -> str:
    """A value in one short line. A section of some kind is `forward_forward (prediction activities)`."""
    if isinstance(value, Mapping) and isinstance(value.get("kind"), str):
        others = ", ".join(f"{key} {value_text(other)}" for key, other in value.items() if key != "kind")
        return f"{value['kind']} ({others})" if others else value["kind"]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def same_value(one: object, other: object) -> bool:
    """Whether two values of an axis are one. 1, 1.0 and true are three; the order of the keys of a section does not
    matter."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def points_of(study: Study) -> Iterator[Point]:
    """Every combination of the values of the axes. The last axis changes fastest."""
    fixed = [NO_CHECKPOINTS, *(Setting(key, value, ("set", key)) for key, value in study.set.items())]
    axes = [list(_values(axis, values)) for axis, values in study.axes.items()]
    for number, chosen in enumerate(itertools.product(*axes)):
        values = dict(zip(study.axes, (value for value, _ in chosen), strict=True))
        goal = [Setting("run.stop_at", study.target.stop_at(values), ("target",))] if study.target is not None else []
        of_axes = itertools.chain(*(settings for _, settings in chosen))
        following = [Setting(key, values[axis], ("follow", key)) for key, axis in study.follow.items()]
        yield Point(number, values, merged([*fixed, *goal], of_axes, following))


def merged(*layers: Iterable[Setting]) -> tuple[Setting, ...]:
    """The settings in order. A later one replaces earlier ones of the same key and of keys below it. A section `run`
    that says nothing of checkpoints leaves it at none, unless the study has asked for them."""
    remaining: list[Setting] = []
    for setting in itertools.chain(*layers):
        depth = len(setting.path)
        silent = setting.key == "run" and isinstance(setting.value, Mapping) and "checkpoint" not in setting.value
        asked = [old for old in remaining if old.path[:2] == NO_CHECKPOINTS.path]
        left = [NO_CHECKPOINTS] if silent and asked == [NO_CHECKPOINTS] else []
        remaining = [*(old for old in remaining if old.path[:depth] != setting.path), setting, *left]
    return tuple(remaining)


def _values(axis: str, values: Any) -> Iterator[tuple[Any, tuple[Setting, ...]]]:
    """Each value of an axis, with its settings."""
    if axis == VARIANT:
        for name, settings in values.items():
            yield name, tuple(Setting(key, value, ("axes", axis, name, key)) for key, value in settings.items())
    else:
        for index, value in enumerate(values):
            yield value, (Setting(axis, value, ("axes", axis, index)),)
