"""The report of a comparison: its figures and tables, and the page `templates/compare.html` that shows them.

The docstring of the function that makes an exhibit is what the page says of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from alray import __version__
from alray.core.metric import Metric
from alray.core.run_folder.records import EvaluationRecord
from alray.report.compare import ComparedRun, ComparedRuns, ComparedSplit, Group
from alray.report.compare_tables import (
    cost_table,
    depth_table,
    difference_table,
    run_table,
    score_table,
    step_table,
)
from alray.report.drawing import MEASURED, PLAIN_NUMBER, Curves, Scale, error_bar
from alray.report.figure import Exhibit, Figure, Show, exhibits_of
from alray.report.html import render_page
from alray.report.same_weights import merged
from alray.report.spread import LEAST_FOR_SPREAD
from alray.report.thinning import spaced
from alray.report.training_time import TRAINING_S

_MOST_POINTS = 2000  # of all curves of a figure together, but at least 50 of each

AxisPosition = Callable[[ComparedRun, EvaluationRecord], float | None]
Row = dict[str, Any]

AXES: dict[str, tuple[str, AxisPosition]] = {
    "steps": ("mini-batches completed", lambda run, record: float(record.step)),
    "samples": ("samples seen", lambda run, record: float(record.samples)),
    "seconds": (TRAINING_S, ComparedRun.training_s),
}
"""The horizontal axes of the accuracy curves: name -> (label, where an evaluation lies on the axis, if it is known)."""


def scores(comparison: ComparedRuns) -> Exhibit:
    """Runs that differ only in their seed share a row: the mean of the runs that finished, and from three runs on ±
    their sample standard deviation. The accuracies, or metrics of another task, are those of the evaluation that is the
    best on the validation set, if its weights were kept, otherwise of the last one; nothing is chosen on the test
    set."""
    return Exhibit(comparison.metric.heading, tables={comparison.metric.name: score_table(comparison)})


def training(comparison: ComparedRuns) -> Exhibit:
    """With several seeds, the line is their mean at the evaluations that all of them made. From three seeds on, the
    band reaches from the lowest to the highest. Of very many evaluations only some are drawn."""
    split, metric = curve_split(comparison), comparison.metric
    figures = [
        _curves(
            f"{metric.name}_by_{axis}",
            f"{split.capitalize()} {metric.title} against {axis}",
            Scale(axis, label, form="~s" if axis == "samples" else PLAIN_NUMBER, from_zero=True),
            Scale(metric.name, f"{split} {metric.title}"),
            rows,
            comparison,
        )
        for axis, (label, _) in AXES.items()
        if (rows := training_rows(comparison, axis))
    ]
    none = () if figures else ("No run made an evaluation.",)
    return Exhibit(f"{metric.heading} during training", tuple(figures), none)


def depths(comparison: ComparedRuns) -> Exhibit | None:
    """At the chosen evaluation. A route of depth n uses the first n components only. Without a label chain the only
    route is the whole network."""
    rows = depth_rows(comparison)
    if not rows:
        return None
    split, metric = comparison.split, comparison.metric
    x = Scale("depth", "depth of the route", ticks=sorted({row["depth"] for row in rows}), form="d")
    y = Scale(metric.name, f"{split} {metric.title}")
    name = f"{metric.name}_per_depth"
    figure = _curves(name, f"{split.capitalize()} {metric.title} per depth", x, y, rows, comparison)
    return Exhibit(f"{metric.heading} per depth", (figure,), tables={name: depth_table(comparison)})


def costs(comparison: ComparedRuns) -> Exhibit:
    """Effective parameters are those that inference at full depth uses: every encoder f and label decoder h, and the
    last bridge b or the head. The rest are affiliate parameters, which only training uses. Memory is that of the
    largest stage. Step times are medians after warm-up, next to the plan's prediction."""
    return Exhibit("Parameters, memory and time", tables={"costs": cost_table(comparison)})


def single_steps(comparison: ComparedRuns) -> Exhibit:
    """Milliseconds of one mini-batch, means after warm-up and over the stages, for the first run of each row."""
    return Exhibit("The single step", tables={"single_step": step_table(comparison)})


def differences(comparison: ComparedRuns) -> Exhibit | None:
    """Every key of the specs whose values differ, except the seed."""
    if not comparison.differences:
        return None
    return Exhibit("What differs in the specs", tables={"differences": difference_table(comparison)})


def runs(comparison: ComparedRuns) -> Exhibit:
    """Each run by itself, whether it was counted above or not."""
    return Exhibit("Every run", tables={"runs": run_table(comparison)})


EXHIBITS: tuple[Show[ComparedRuns], ...] = (scores, training, depths, costs, single_steps, differences, runs)
"""In the order of the page."""


@dataclass(frozen=True)
class ComparisonReport:
    """The report of a comparison: figures, tables and the page that has them."""

    comparison: ComparedRuns

    @cached_property
    def exhibits(self) -> list[Exhibit]:
        """In the order of the page."""
        return exhibits_of(self.comparison, EXHIBITS)

    def page(self) -> str:
        """The HTML page."""
        return render_page(
            "compare.html",
            self.exhibits,
            title="Comparison · alray",
            version=__version__,
            notes=self.comparison.notes,
            labels=[group.label for group in self.comparison.groups],
        )


def training_rows(comparison: ComparedRuns, axis: str) -> list[Row]:
    """Accuracy during training along an axis of `AXES`, for each group.

    A value is the mean over the runs of a group, at the evaluations that all of them made. From three runs on, `low`
    and `high` are those of the lowest and the highest. Of very many evaluations only some are in it, evenly spaced.
    """
    split = curve_split(comparison)
    most = max(50, _MOST_POINTS // max(1, len(comparison.groups)))
    found: list[Row] = []
    for group in comparison.groups:
        shared = spaced(_same_steps(group.counted), most)
        found += _means(group, axis, shared, split)
    return found


def depth_rows(comparison: ComparedRuns) -> list[Row]:
    """Accuracy against depth at the chosen evaluations of each group, on the set `ComparedRuns.split`."""
    return [
        {
            "series": group.label,
            "kind": MEASURED,
            "depth": depth,
            **_mean(comparison.metric, values, len(group.counted)),
        }
        for group in comparison.groups
        for depth in group.depths
        if (values := _known([run.score(comparison.split, depth) for run in group.counted]))
    ]


def curve_split(comparison: ComparedRuns) -> ComparedSplit:
    """The set of the training curves: validation, by which evaluations are chosen; test if a run has no validation."""
    of_runs = [run.evaluations for group in comparison.groups for run in group.counted if run.evaluations]
    return "validation" if all(any(each.validation is not None for each in of_run) for of_run in of_runs) else "test"


def _curves(name: str, title: str, x: Scale, y: Scale, rows: list[Row], comparison: ComparedRuns) -> Figure:
    """A figure of curves. Groups that end in the same weights have one curve where their values are equal."""
    weights = {group.label: group.weights for group in comparison.groups}
    rows, series, *_ = merged(rows, weights, (x.field, y.field, "low", "high"))
    curves = Curves(x, y, series, tells={"series": "run", "runs": "runs"}, size=20, bands=True)
    return curves.figure(name, title, rows)


def _means(
    group: Group, axis: str, evaluations: Sequence[Sequence[EvaluationRecord]], split: ComparedSplit
) -> Iterator[Row]:
    """
    Args:
        evaluations: after the same mini-batch, one of each run.
    """
    position = AXES[axis][1]
    for records in evaluations:
        values = _known([getattr(record, split) for record in records])
        at = _known([position(run, record) for run, record in zip(group.counted, records, strict=True)])
        if len(values) == len(at) == len(records):
            yield {
                "series": group.label,
                "kind": MEASURED,
                axis: fmean(at),
                **_mean(group.first.figures.measures, values, len(records)),
            }


def _mean(metric: Metric, values: Sequence[float], runs: int) -> Row:
    band = error_bar((min(values), max(values)) if runs >= LEAST_FOR_SPREAD else None)
    return {metric.name: fmean(values), "runs": runs, **band}


def _same_steps(runs: Sequence[ComparedRun]) -> list[list[EvaluationRecord]]:
    """The evaluations that every run made after the same number of mini-batches, in order of that number."""
    of_run = [{record.step: record for record in run.evaluations} for run in runs]
    shared = set(of_run[0]).intersection(*of_run[1:])
    return [[records[step] for records in of_run] for step in sorted(shared)]


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
