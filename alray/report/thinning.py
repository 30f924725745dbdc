"""Long curves as few points: each the mean of neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

Point = tuple[float, float]


def thin(points: Sequence[Point], limit: int) -> list[Point]:
    """At most `limit` points, each the mean of `run_length` neighbours (the last one possibly of fewer).

    Values that are not finite are left out first.
    """
    finite = [point for point in points if math.isfinite(point[1])]
    length = run_length(len(finite), limit)
    return [_mean(finite[start : start + length]) for start in range(0, len(finite), length)]


def run_length(num_points: int, limit: int) -> int:
    """How many neighbouring points are drawn as one: the smallest number that gives at most `limit` points."""
    return max(1, math.ceil(num_points / limit))


def _mean(points: Sequence[Point]) -> Point:
    return (
        sum(point[0] for point in points) / len(points),
        math.fsum(point[1] for point in points) / len(points),
    )
