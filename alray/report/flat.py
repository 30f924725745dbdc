"""A document of sections as one list of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

TakeApart = Callable[[Any], Mapping[Any, Any] | None]
"""Gives the parts of a value by name; None if the value stays whole."""


def sections(value: Any) -> Mapping[Any, Any] | None:
    """The parts of a section. Everything else stays whole, lists too."""
    return value if isinstance(value, dict) else None


def sections_and_lists(value: Any) -> Mapping[Any, Any] | None:
    """The parts of a section, and the entries of a list by their number."""
    return dict(enumerate(value)) if isinstance(value, list) else sections(value)


def flat(value: Any, parts: TakeApart = sections, key: str = "") -> Iterator[tuple[str, Any]]:
    """The values in a document, each with its key as in an override: `optimizer.lr`."""
    found = parts(value)
    if found is None:
        yield key, value
        return
    for name, part in found.items():
        yield from flat(part, parts, f"{key}.{name}" if key else str(name))
