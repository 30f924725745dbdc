"""Curves over the course of a run, as values: what is drawn on the page and written for TensorBoard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from alray.records import EvaluationRecord, Record, StepRecord

MAX_POINTS = 300  # of a curve on the page: about one for every two pixels

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """One line of a chart: (mini-batches completed, value), in order of the first.

    band: (the same, lowest value, highest value) of the runs whose mean the line is; () where it is of one run.
    """

    label: str
    points: tuple[Point, ...]
    band: tuple[tuple[float, float, float], ...] = ()


def loss_curves(records: Sequence[Record]) -> dict[str, list[Curve]]:
    """For each loss name, one curve per component that has it; components count from 0, as in the spec."""
    points: dict[str, dict[int, list[Point]]] = {}
    for record in records:
        if not isinstance(record, StepRecord):
            continue
        for component, losses in record.losses.items():
            for name, value in losses.items():
                points.setdefault(name, {}).setdefault(component, []).append((record.step, value))
    return {
        name: [Curve(f"component {component}", tuple(of[component])) for component in sorted(of)]
        for name, of in sorted(points.items())
    }


def accuracy_curves(records: Sequence[Record]) -> list[Curve]:
    """Accuracy on the training, validation and test sets, those of them that were measured."""
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    curves = []
    for label, of in (
        ("train", [(record.step, record.train) for record in evaluations]),
        ("validation", [(record.step, record.validation) for record in evaluations]),
        ("test", [(record.step, record.test) for record in evaluations]),
    ):
        points = tuple((float(step), value) for step, value in of if value is not None)
        if points:
            curves.append(Curve(label, points))
    return curves


def thin(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` points: the means of `run_length` neighbours each, of which the last may have fewer.

    Values that are not finite are left out first; `num_not_finite` counts them.
    """
    finite = [point for point in points if math.isfinite(point[1])]
    length = run_length(len(finite), limit)
    return [_mean(finite[start : start + length]) for start in range(0, len(finite), length)]


def run_length(num_points: int, limit: int = MAX_POINTS) -> int:
    """How many neighbouring points are drawn as one: the smallest number that gives at most `limit`."""
    return max(1, math.ceil(num_points / limit))


def num_not_finite(curves: Sequence[Curve]) -> int:
    """How many values of these curves are infinite or not a number."""
    return sum(not math.isfinite(value) for curve in curves for _, value in curve.points)


def _mean(points: Sequence[Point]) -> Point:
    return (
        sum(point[0] for point in points) / len(points),
        math.fsum(point[1] for point in points) / len(points),
    )
