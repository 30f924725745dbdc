"""Long lists as short ones, which a figure can draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

CurvePoint = tuple[float, float]
_Item = TypeVar("_Item")


def thin(points: Sequence[CurvePoint], limit: int) -> list[CurvePoint]:
    """At most `limit` points, each the mean of `run_length` neighbours (the last one possibly of fewer).

    Values that are not finite are left out first.
    """
    return [_mean(group) for group in groups([point for point in points if math.isfinite(point[1])], limit)]


def groups(items: Sequence[_Item], limit: int, *, least: int = 1) -> list[Sequence[_Item]]:
    """The items in at most `limit` groups of as many neighbours; the last group may have fewer.

    Args:
        least: of a group.
    """
    length = max(least, run_length(len(items), limit))
    return [items[start : start + length] for start in range(0, len(items), length)]


def spaced(items: Sequence[_Item], limit: int) -> Sequence[_Item]:
    """At most `limit` of the items, evenly spaced; the last one is among them."""
    every = run_length(len(items), limit)
    return items[(len(items) - 1) % every :: every]


def run_length(num_items: int, limit: int) -> int:
    """How many neighbours are drawn as one: the smallest number that gives at most `limit`."""
    return max(1, math.ceil(num_items / limit))


def _mean(points: Sequence[CurvePoint]) -> CurvePoint:
    return (
        sum(point[0] for point in points) / len(points),
        math.fsum(point[1] for point in points) / len(points),
    )
