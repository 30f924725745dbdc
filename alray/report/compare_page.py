"""The report of a comparison: its figures and tables, and the page `templates/compare.html` that shows them.

The docstring of the function that makes an exhibit is what the page says of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from alray import __version__
from alray.report.compare import ComparedRuns
from alray.report.compare_tables import (
    cost_table,
    depth_table,
    difference_table,
    run_table,
    score_table,
    step_table,
)
from alray.report.drawing import MEASURED, error_bar
from alray.report.figure import Exhibit, Show, exhibits_of
from alray.report.html import render_page
from alray.report.spread import LEAST_FOR_SPREAD
from alray.report.training_curves import MeanOf, Row, depth_figure, training_exhibit, training_rows

_MOST_POINTS = 2000  # of all curves of a figure together, but at least 50 of each


def scores(comparison: ComparedRuns) -> Exhibit:
    """Runs that differ only in their seed share a row: the mean of the runs that finished, and from three runs on ±
    their sample standard deviation. The accuracies, or metrics of another task, are those of the evaluation that is the
    best on the validation set, or of the last one where there is none; nothing is chosen on the test set."""
    return Exhibit(comparison.metric.heading, tables={comparison.metric.name: score_table(comparison)})


def training(comparison: ComparedRuns) -> Exhibit:
    """On the validation set, or on the test set where there is none. With several seeds, the line is their mean at the
    evaluations that all of them made. From three seeds on, the band reaches from the lowest to the highest. Of very
    many evaluations only some are drawn."""
    if not (rows := curve_rows(comparison)):
        return Exhibit(f"{comparison.metric.heading} during training", findings=("No run made an evaluation.",))
    return training_exhibit(comparison.metric, rows, {each.label: each.weights for each in comparison.groups})


def depths(comparison: ComparedRuns) -> Exhibit | None:
    """At the chosen evaluation. A route of depth n uses the first n components only. Without a label chain the only
    route is the whole network."""
    if not (rows := list(depth_rows(comparison))):
        return None
    metric = comparison.metric
    figure, notes = depth_figure(metric, rows, {each.label: each.weights for each in comparison.groups})
    tables = {f"{metric.name}_per_depth": depth_table(comparison)}
    return Exhibit(f"{metric.heading} per depth, {comparison.split}", (figure,), notes, tables=tables)


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


def curve_rows(comparison: ComparedRuns) -> list[Row]:
    """Accuracy during training of each group."""
    most = max(50, _MOST_POINTS // max(1, len(comparison.groups)))
    return [
        row
        for group in comparison.groups
        for row in training_rows(
            group.label,
            [(run.evaluations, run.training_time) for run in group.counted],
            most,
            _mean_of(comparison, len(group.counted)),
        )
    ]


def depth_rows(comparison: ComparedRuns) -> Iterator[Row]:
    """Accuracy against depth at the chosen evaluations of each group, on the set `ComparedRuns.split`."""
    for group in comparison.groups:
        mean = _mean_of(comparison, len(group.counted))
        for depth in group.depths:
            values = [value for run in group.counted if (value := run.score(comparison.split, depth)) is not None]
            if values:
                yield {"series": group.label, "kind": MEASURED, "depth": depth, **mean(values)}


def _mean_of(comparison: ComparedRuns, runs: int) -> MeanOf:
    """The mean over the runs of a group; the band reaches from the lowest to the highest."""

    def mean(values: list[float]) -> Row:
        band = error_bar((min(values), max(values)) if runs >= LEAST_FOR_SPREAD else None)
        return {comparison.metric.name: fmean(values), "seeds": runs, **band}

    return mean
