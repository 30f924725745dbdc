"""The main figures of any study, over its first axis."""

from __future__ import annotations

from collections.abc import Mapping

from alray.config.study.points import in_words, value_text
from alray.report.drawing import MEASURED, Curves, Scale
from alray.report.figure import Exhibit, Figure, file_name
from alray.report.same_weights import Weights, merged
from alray.studies.figures.trouble import marks_of, measured
from alray.studies.results import Results
from alray.studies.table import weights_along


def over_one_axis(results: Results) -> Exhibit | None:
    """The best validation accuracy (or metric of another task) and the step time (median over the mini-batches after
    warm-up) of every point over the first axis of numbers, or else the first axis, one series for each combination of
    the other axes. Mean over seeds; the bar, from three seeds on, is its 90 % interval by Student's t. Another shape
    marks a point where a seed did not come to its end or learned next to nothing. Source: the rows of the table."""
    if not results.compares_ends:
        return None
    axis = next(filter(results.is_numeric, results.axes), results.axes[0])
    weights = {label: weights_along(rows) for label, rows in results.along(axis).items()}
    found = (
        _over(results, axis, "validation", f"validation {results.metric.title}", weights),
        _over(results, axis, "step_time_s", "step time (seconds)", {}),
    )
    figures = tuple(figure for figure, _ in filter(None, found))
    notes = tuple(note for _, notes in filter(None, found) for note in notes)
    return Exhibit(f"Over {in_words(axis)}", figures, notes) if figures else None


def _over(
    results: Results, axis: str, name: str, title: str, weights: Mapping[str, Weights | None]
) -> tuple[Figure, tuple[str, ...]] | None:
    """A figure of points over an axis, with notes on curves that stand for several series.

    Args:
        name: of the figure, as in `ROW_FIGURES`.
        weights: as for `merged`.
    """
    x = _scale(results, axis)
    rows = [
        {
            "series": label,
            "kind": MEASURED,
            "value": value_text(row.point[axis]) if x.names else row.point[axis],
            **measured(results, row, name),
        }
        for label, of_label in results.along(axis).items()
        for row in of_label
        if row.figures[name] is not None
    ]
    if not rows:
        return None
    rows, series, notes = merged(rows, weights, ("value", name, "low", "high"))
    tells = {"series": "series", "seeds": "seeds", "doubts": "doubts"}
    curves = Curves(x, Scale(name, title), series, marks=marks_of(rows), tells=tells, joined=not x.names)
    heading = f"{title.partition(' (')[0].capitalize()} over {x.title}"
    return curves.figure(file_name(f"{name}_over_{axis}"), heading, rows), notes


def _scale(results: Results, axis: str) -> Scale:
    """The axis of a study as that of a drawing: by powers of two if its numbers are ten times as large at the end."""
    values = results.values(axis)
    if not results.is_numeric(axis):
        return Scale("value", in_words(axis), names=[value_text(value) for value in values])
    return Scale("value", in_words(axis), base=2 if 0 < 10 * min(values) <= max(values) else 0, ticks=sorted(values))
