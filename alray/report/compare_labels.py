"""What tells compared runs apart: the keys in which their specs differ, and a short name for each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_FIRST = ("name", "method.kind", "pipeline.schedule", "pipeline.stages")
"""Keys that names are made of before any other."""
_LAST = ("version", "run.", "resources.", "data.")
"""Keys that seldom are the reason why runs are compared."""
_LONGEST = 60
_ABSENT = "–"


def differing_keys(specs: Sequence[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Every key but `seed` whose values differ, with its value in each spec as one short line of text."""
    flat = [_flattened(spec) for spec in specs]
    keys = [key for key in dict.fromkeys(key for values in flat for key in values) if key != "seed"]
    found = {key: tuple(values.get(key, _ABSENT) for values in flat) for key in sorted(keys, key=_rank)}
    return {key: tuple(map(_short, values)) for key, values in found.items() if len(set(values)) > 1}


def labels_of(specs: Sequence[dict[str, Any]], engines: Sequence[str]) -> list[str]:
    """A name for each of these specs, no two alike: the spec's own, and as few values as tell them apart."""
    labels = [str(spec["name"]) for spec in specs]
    for key, values in differing_keys(specs).items():
        if len(set(labels)) == len(labels):
            break
        tells_apart = len(set(zip(labels, values, strict=True))) > len(set(labels))
        if tells_apart and key != "name":
            labels = [f"{label}, {_told(key, value)}" for label, value in zip(labels, values, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{label}, {engine}" for label, engine in zip(labels, engines, strict=True)]
    if len(set(labels)) < len(labels):  # they differ in the middle of a long value
        labels = [f"{label}, number {number}" for number, label in enumerate(labels, start=1)]
    return labels


def _told(key: str, value: str) -> str:
    if key in ("method.kind", "pipeline.schedule"):
        return value.replace("_", " ")
    return f"{key.rpartition('.')[2]} {value}"


def _rank(key: str) -> tuple[int, str]:
    if key in _FIRST:
        return _FIRST.index(key), key
    return len(_FIRST) + key.startswith(_LAST), key


def _flattened(spec: dict[str, Any], before: str = "") -> dict[str, str]:
    """Every value that is no section, by its whole key."""
    values: dict[str, str] = {}
    for key, value in spec.items():
        if isinstance(value, dict):
            values |= _flattened(value, f"{before}{key}.")
        elif key == "components":
            values[f"{before}{key}"] = " ".join(_component(entry) for entry in value)
        else:
            values[f"{before}{key}"] = value if isinstance(value, str) else json.dumps(value)
    return values


def _component(entry: dict[str, Any]) -> str:
    fields = [f"{key}={json.dumps(value)}" for key, value in entry.items() if key not in ("block", "repeat")]
    times = f"{entry['repeat']}x" if entry.get("repeat", 1) != 1 else ""
    return f"{times}{entry['block']}({', '.join(fields)})"


def _short(text: str) -> str:
    """Cut in the middle, where it is too long: values that differ often do so at their ends."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2 - 1]}…{text[-_LONGEST // 2 :]}"
