"""Figures of a study that cuts one network into different numbers of components."""

from __future__ import annotations

from typing import Any

from alray.config.study.points import series_label
from alray.report.drawing import MEASURED, Curves, Scale, colours_of, error_bar
from alray.report.figure import Exhibit, Figure
from alray.studies.confidence import Interval
from alray.studies.doubt import interval_of_point
from alray.studies.figures.trouble import marks_of, trouble
from alray.studies.results import Results

_ACROSS = "components"
_HEADING = "Over the number of components"


def over_components(results: Results) -> Exhibit | None:
    """The error on the test set (or metric of another task; without a test set, on the validation set), and the step
    time (median over the mini-batches after warm-up), over the number of components that the network is cut into, one
    series for each combination of the other axes. Mean over seeds; the bar, from three seeds on, is its 90 % interval
    by Student's t. Another shape marks a point where a seed did not come to its end or learned next to nothing. Source:
    the rows of the table."""
    axis = results.axis_of_cuts
    if axis is None or not results.compares_ends:
        return None
    split = "test" if any(row.figures["test"] is not None for row in results.rows) else "validation"
    metric = results.metric
    score = f"{split} error" if metric.share else f"{split} {metric.title}"
    found = (
        _figure(results, axis, split, score, is_error=metric.share),
        _figure(results, axis, "step_time_s", "step time (seconds)"),
    )
    figures = tuple(figure for figure in found if figure is not None)
    return Exhibit(_HEADING, figures) if figures else None


def _figure(results: Results, axis: str, name: str, title: str, *, is_error: bool = False) -> Figure | None:
    """A figure of the rows over the number of components.

    Args:
        is_error: draw 1 - value.
    """
    rows: list[dict[str, Any]] = []
    for row in results.rows:
        spread, summary = row.figures[name], row.summary
        if spread is None or summary is None:
            continue
        interval, value = interval_of_point(results, row, name), spread.mean
        if is_error:
            interval, value = interval and Interval(1 - interval.high, 1 - interval.low), 1 - value
        shown = {"series": series_label(row.point, (axis,)), "kind": MEASURED, _ACROSS: sum(summary.partition)}
        seeds = min(spread.runs, row.seeds)
        rows.append({**shown, name: value, "seeds": seeds, **error_bar(interval), **trouble(results, row, name)})
    if not rows:
        return None
    rows.sort(key=lambda row: row[_ACROSS])
    labels = list(dict.fromkeys(row["series"] for row in rows))
    ticks = sorted({row[_ACROSS] for row in rows})
    x = Scale(_ACROSS, "number of components", base=2, ticks=ticks)
    tells = {"series": "series", "seeds": "seeds", "doubts": "doubts"}
    y = Scale(name, title, base=10 if is_error and all(row[name] > 0 for row in rows) else 0)
    curves = Curves(x, y, colours_of(labels), marks=marks_of(rows), tells=tells)
    heading = f"{title.partition(' (')[0].capitalize()} {_HEADING.lower()}"
    return curves.figure(f"{name}_over_components", heading, f"{heading}: {', '.join(labels)}.", rows)
