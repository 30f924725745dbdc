"""In which values the specs of a comparison differ, and a short label for each of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from alray.report.flat import flat

_FIRST = ("name", "method.kind", "pipeline.schedule", "pipeline.stages")
"""Keys of a spec that labels use before any other key."""
_LAST = ("version", "run.", "resources.", "data.")
"""Keys that are seldom the reason for a comparison."""
_LONGEST = 60
_ABSENT = "–"


def differences(specs: Sequence[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Every key except `seed` whose values differ, with its value in each spec as one short line of text."""
    of_specs = [_texts(spec) for spec in specs]
    keys = [key for key in dict.fromkeys(key for values in of_specs for key in values) if key != "seed"]
    found = {key: tuple(values.get(key, _ABSENT) for values in of_specs) for key in sorted(keys, key=_rank)}
    return {key: tuple(map(_short, values)) for key, values in found.items() if len(set(values)) > 1}


def labels_of(specs: Sequence[dict[str, Any]], engines: Sequence[str]) -> list[str]:
    """A unique label for each spec: its name, and the fewest values that make the labels differ."""
    labels = [str(spec["name"]) for spec in specs]
    for key, values in differences(specs).items():
        if len(set(labels)) == len(labels):
            break
        separates = len(set(zip(labels, values, strict=True))) > len(set(labels))
        if separates and key != "name":
            labels = [f"{label}, {_named(key, value)}" for label, value in zip(labels, values, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{label}, {engine}" for label, engine in zip(labels, engines, strict=True)]
    if len(set(labels)) < len(labels):  # the specs differ in the middle of a long value
        labels = [f"{label}, number {number}" for number, label in enumerate(labels, start=1)]
    return labels


def _named(key: str, value: str) -> str:
    """A value in a label: `lr 0.1`. Where the last part of a key says too little alone, its section names it: `replicas
    2`, `checkpoint every 1 epoch`."""
    if key in ("method.kind", "pipeline.schedule"):
        return value.replace("_", " ")
    section, _, last = key.rpartition(".")
    section = section.rpartition(".")[2]
    if section and last in ("count", "kind"):
        return f"{section} {value}"
    return f"{section} {last} {value}" if section and last in ("every", "keep", "hidden", "pool") else f"{last} {value}"


def _rank(key: str) -> tuple[int, str]:
    if key in _FIRST:
        return _FIRST.index(key), key
    return len(_FIRST) + key.startswith(_LAST), key


def _texts(spec: dict[str, Any]) -> dict[str, str]:
    """Every value that is not a section, by its full key."""
    return {key: _text(key, value) for key, value in flat(spec)}


def _text(key: str, value: Any) -> str:
    if key.rpartition(".")[2] == "components" and isinstance(value, list):
        return " ".join(_component(entry) for entry in value)
    return " ".join(value.splitlines()) if isinstance(value, str) else json.dumps(value)


def _component(entry: dict[str, Any]) -> str:
    fields = [f"{key}={json.dumps(value)}" for key, value in entry.items() if key not in ("block", "repeat")]
    times = f"{entry['repeat']}x" if entry.get("repeat", 1) != 1 else ""
    return f"{times}{entry['block']}({', '.join(fields)})"


def _short(text: str) -> str:
    """A long text without its middle, because long values often differ at their ends."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2 - 1]}…{text[-_LONGEST // 2 :]}"
