"""The metric of several runs during training and by depth, which comparisons and studies draw alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from alray.core.metric import Metric
from alray.core.run_folder.records import EvaluationRecord
from alray.report.drawing import MEASURED, Curves, Scale, series_of
from alray.report.figure import Exhibit, Figure
from alray.report.same_weights import Weights, merged
from alray.report.thinning import spaced
from alray.report.training_time import TRAINING_S, TrainingTime

Row = dict[str, Any]
MeanOf = Callable[[list[float]], Row]
"""Makes the fields of a row with the mean of values, how many seeds they are of, and the ends of its band."""


def training_rows(
    series: str, runs: Sequence[tuple[Sequence[EvaluationRecord], TrainingTime]], most: int, mean: MeanOf
) -> Iterator[Row]:
    """One curve: a mean over runs at the evaluations that all of them made, at most so many of them, evenly spaced; the
    last one is among them. A value is that on the validation set, or on the test set where there is none."""
    of_runs = [_scores(*run) for run in runs]
    shared = sorted(set(of_runs[0]).intersection(*of_runs[1:])) if of_runs else []
    for number, step in spaced(list(enumerate(shared, start=1)), most):
        each = [of_run[step] for of_run in of_runs]
        seconds = [each_s for *_, each_s in each if each_s is not None]
        yield {
            "series": series,
            "kind": MEASURED,
            "step": step,
            "samples": each[0][0],
            "evaluation": number,
            "seconds": fmean(seconds) if len(seconds) == len(each) else None,
            **mean([value for _, value, _ in each]),
        }


def training_exhibit(metric: Metric, rows: list[Row], weights: Mapping[str, Weights | None]) -> Exhibit:
    """The curves of these rows against seconds of training and against samples. Against samples one curve stands for
    all with the same weights and values.

    Args:
        weights: as for `merged`.
    """
    one_curve_each = merged(rows, weights, ("samples", metric.name, "low", "high"))
    tells = {"series": "of", "seeds": "seeds", "step": "mini-batches", "seconds": "seconds", "samples": "samples"}
    figures = []
    for name, title, x in (
        ("seconds", "seconds of training", Scale("seconds", TRAINING_S, from_zero=True)),
        ("samples", "samples", Scale("samples", "samples seen", form="~s", from_zero=True)),
    ):
        drawn, series = (rows, series_of(rows)) if name == "seconds" else (one_curve_each.rows, one_curve_each.series)
        curves = Curves(x, Scale(metric.name, metric.title), series, tells=tells, size=14, bands=True)
        what = f"{metric.heading} during training against {title}"
        shown = [row for row in drawn if row[name] is not None]
        if shown:
            figures.append(curves.figure(f"{metric.name}_by_{name}", f"{metric.heading} against {title}", shown, what))
    return Exhibit(f"{metric.heading} during training", tuple(figures), one_curve_each.notes)


def depth_figure(
    metric: Metric, rows: list[Row], weights: Mapping[str, Weights | None]
) -> tuple[Figure, tuple[str, ...]]:
    """The metric by the depth of the route, with notes on curves that stand for several series.

    Args:
        rows: each with its `series` and `depth`.
        weights: as for `merged`.
    """
    rows, series, notes = merged(rows, weights, ("depth", metric.name, "low", "high"))
    depth = Scale("depth", "depth of the route", ticks=sorted({row["depth"] for row in rows}), form="d")
    curves = Curves(depth, Scale(metric.name, metric.title), series, tells={"series": "of", "seeds": "seeds"})
    what = f"{metric.heading} by the depth of the route"
    return curves.figure(f"{metric.name}_per_depth", f"{metric.heading} per depth", rows, what), notes


def _scores(
    evaluations: Sequence[EvaluationRecord], training: TrainingTime
) -> dict[int, tuple[int, float, float | None]]:
    """Samples, metric and seconds of training of each evaluation of a run, by its mini-batches."""
    found = {}
    for one in reversed(evaluations):
        value = one.validation if one.validation is not None else one.test
        if value is not None:
            found[one.step] = one.samples, value, training.until(one.step)
    return found
