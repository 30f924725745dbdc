"""The page of a comparison: what `templates/compare.html` shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from alray import __version__
from alray.records import EvaluationRecord
from alray.report.charts import Curve, line_chart
from alray.report.compare import ComparedRun, ComparedSplit, Comparison, Group
from alray.report.compare_tables import accuracy_table, bag_table, cost_table, depth_table
from alray.report.html import render
from alray.report.single_step import HEAD, rows_of

Place = Callable[[ComparedRun, EvaluationRecord], float]

AXES: dict[str, tuple[str, Place]] = {
    "steps": ("mini-batches completed", lambda run, record: float(record.step)),
    "samples": ("samples seen", lambda run, record: float(record.samples)),
    "seconds": ("seconds of training, without start-up, with evaluations", ComparedRun.training_s),
}
"""The horizontal axes of the accuracy curves: name -> (label, where an evaluation lies on the axis)."""


def comparison_page(comparison: Comparison) -> str:
    """The HTML page of a comparison."""
    split = curve_split(comparison)
    training = [
        line_chart(
            training_curves(comparison, axis),
            title=f"{split.capitalize()} accuracy against {axis}",
            y_label=f"{split} accuracy",
            x_label=label,
        )
        for axis, (label, _) in AXES.items()
    ]
    return render(
        "compare.html",
        title="Comparison · alray",
        version=__version__,
        comparison=comparison,
        labels=[group.label for group in comparison.groups],
        accuracies=accuracy_table(comparison),
        bags=bag_table(comparison),
        training=[chart for chart in training if chart.lines],
        depths=depth_table(comparison),
        depth_chart=line_chart(
            depth_curves(comparison),
            title=f"{comparison.split.capitalize()} accuracy per depth",
            y_label=f"{comparison.split} accuracy",
            x_label="depth of the route",
        ),
        costs=cost_table(comparison),
        single_step_head=["run", "", *HEAD],
        single_step_rows=rows_of((group.label, group.single_step.step) for group in comparison.groups),
    )


def training_curves(comparison: Comparison, axis: str) -> list[Curve]:
    """Accuracy during training: one curve for each group, and one for its bag of embeddings if it has one.

    A curve is the mean over the runs of a group, at the evaluations that all of them made. Its band reaches from the
    lowest run to the highest.
    """
    split = curve_split(comparison)
    place = AXES[axis][1]
    curves = []
    for group in comparison.groups:
        curves.append(_mean_curve(group, group.label, place, lambda record: getattr(record, split)))
        if group.has_bag_of_embeddings:
            label = f"{group.label}: bag of embeddings"
            curves.append(_mean_curve(group, label, place, lambda record: _at_depth_1(record, split)))
    return [curve for curve in curves if curve.points]


def depth_curves(comparison: Comparison) -> list[Curve]:
    """Accuracy against depth at the chosen evaluations: one curve for each group, on the set `Comparison.split`."""
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


def curve_split(comparison: Comparison) -> ComparedSplit:
    """The set of the training curves: validation, by which evaluations are chosen; test if a run has no validation."""
    runs = [run for group in comparison.groups for run in group.counted]
    return "validation" if all(run.figures.best is not None for run in runs if run.evaluations) else "test"


def _mean_curve(
    group: Group,
    label: str,
    place: Place,
    value: Callable[[EvaluationRecord], float | None],
) -> Curve:
    points = []
    band = []
    for records in _same_steps(group.counted):
        values = _known([value(record) for record in records])
        if len(values) == len(records):
            at = fmean(place(run, record) for run, record in zip(group.counted, records, strict=True))
            points.append((at, fmean(values)))
            band.append((at, min(values), max(values)))
    return Curve(label, tuple(points), tuple(band) if len(group.counted) > 1 else ())


def _same_steps(runs: Sequence[ComparedRun]) -> list[list[EvaluationRecord]]:
    """The evaluations that every run made after the same number of mini-batches, in order of that number."""
    of_run = [{record.step: record for record in run.evaluations} for run in runs]
    shared = set(of_run[0]).intersection(*of_run[1:])
    return [[records[step] for records in of_run] for step in sorted(shared)]


def _at_depth_1(record: EvaluationRecord, split: ComparedSplit) -> float | None:
    value: float | None = next((getattr(entry, split) for entry in record.per_depth if entry.depth == 1), None)
    return value


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
