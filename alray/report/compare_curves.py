"""Accuracy of compared groups over the course of training and over depth, as lines to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from alray.records import EvaluationRecord
from alray.report.compare import ComparedRun, Comparison, Group, Split
from alray.report.curves import Curve

AXES: dict[str, tuple[str, Callable[[EvaluationRecord], float]]] = {
    "steps": ("mini-batches completed", lambda record: float(record.step)),
    "samples": ("samples seen", lambda record: float(record.samples)),
    "seconds": ("seconds since the start, evaluations included", lambda record: record.time_s),
}
"""What accuracy is drawn against: by name, the label of the axis and where an evaluation lies on it."""


def training_curves(comparison: Comparison, axis: str) -> list[Curve]:
    """A line for each group, the mean over its runs at the evaluations all of them made, and one for each bag of
    embeddings; bands from the lowest run to the highest."""
    split = curve_split(comparison)
    place = AXES[axis][1]
    curves = []
    for group in comparison.groups:
        curves.append(_mean_curve(group, group.label, place, lambda record: getattr(record, split)))
        if group.has_bag_of_embeddings:
            curves.append(
                _mean_curve(
                    group, f"{group.label}: bag of embeddings", place, lambda record: _at_depth_1(record, split)
                )
            )
    return [curve for curve in curves if curve.points]


def depth_curves(comparison: Comparison) -> list[Curve]:
    """Accuracy of every route at the evaluation that counts, on the set that `Comparison.split` names."""
    curves = []
    for group in comparison.groups:
        points = []
        band = []
        for depth in group.depths:
            values = _known([run.accuracy(comparison.split, depth) for run in group.counted])
            if values:
                points.append((float(depth), fmean(values)))
                band.append((float(depth), min(values), max(values)))
        curves.append(Curve(group.label, tuple(points), tuple(band) if len(group.counted) > 1 else ()))
    return [curve for curve in curves if curve.points]


def curve_split(comparison: Comparison) -> Split:
    """Validation, which is what runs are chosen by; test where a run has no validation set."""
    runs = [run for group in comparison.groups for run in group.counted]
    return "validation" if all(run.figures.best is not None for run in runs if run.evaluations) else "test"


def _mean_curve(
    group: Group,
    label: str,
    place: Callable[[EvaluationRecord], float],
    value: Callable[[EvaluationRecord], float | None],
) -> Curve:
    points = []
    band = []
    for records in _same_steps(group.counted):
        values = _known([value(record) for record in records])
        if len(values) == len(records):
            at = fmean(place(record) for record in records)
            points.append((at, fmean(values)))
            band.append((at, min(values), max(values)))
    return Curve(label, tuple(points), tuple(band) if len(group.counted) > 1 else ())


def _same_steps(runs: Sequence[ComparedRun]) -> list[list[EvaluationRecord]]:
    """The evaluations after as many mini-batches in each run, by that number."""
    of_run = [{record.step: record for record in run.evaluations} for run in runs]
    shared = set(of_run[0]).intersection(*of_run[1:])
    return [[records[step] for records in of_run] for step in sorted(shared)]


def _at_depth_1(record: EvaluationRecord, split: Split) -> float | None:
    value: float | None = next((getattr(entry, split) for entry in record.per_depth if entry.depth == 1), None)
    return value


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
