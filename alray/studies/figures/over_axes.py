"""Figures of any study: its main figures over the first axis, heat maps over two axes, and those of a study that cuts
one network into different numbers of components."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from alray.config.study.points import in_words, series_label, value_text
from alray.config.study.section import BATCH_SIZE
from alray.report.drawing import MEASURED, Curves, Scale, heat_map
from alray.report.figure import Exhibit, Figure, file_name
from alray.report.same_weights import Weights, merged
from alray.report.spread import shown
from alray.report.text import number, score, seconds, share
from alray.studies.figures.trouble import marks_of, measured
from alray.studies.results import Results
from alray.studies.scaling import DEVICE_AXES
from alray.studies.table import PointRow, weights_along

_NOT_REACHED = "not reached"
_ACROSS = "components"
_STEP_TIME = ("step_time_s", "step time (seconds)")
_OVER_COMPONENTS = "Over the number of components"


def over_one_axis(results: Results) -> Exhibit | None:
    """The best validation accuracy (or metric of another task) and the step time (median over the mini-batches after
    warm-up) of every point over the first axis of numbers, or else the first axis, one series for each combination of
    the other axes. Mean over seeds; the bar, from three seeds on, is its 90 % interval by Student's t. Another shape
    marks a point where a seed did not come to its end or learned next to nothing. Source: the rows of the table."""
    if not results.compares_ends or results.axis_of_cuts is not None:
        return None
    axis = next(filter(results.is_numeric, results.axes), results.axes[0])
    along = results.along(axis)
    weights = {label: weights_along(rows) for label, rows in along.items()}
    x = _axis_scale(results, axis)
    points = [
        (label, value_text(row.point[axis]) if x.names else row.point[axis], row)
        for label, rows in along.items()
        for row in rows
    ]
    found = (
        _over(results, points, x, (axis, x.title), ("validation", f"validation {results.metric.title}"), weights),
        _over(results, points, x, (axis, x.title), _STEP_TIME, {}),
    )
    figures = tuple(figure for figure, _ in filter(None, found))
    notes = tuple(note for _, notes in filter(None, found) for note in notes)
    return Exhibit(f"Over {in_words(axis)}", figures, notes) if figures else None


def heat_maps(results: Results) -> Exhibit | None:
    """Samples a second, the efficiency, and the seconds of training to the target (without a target the best
    validation accuracy) over two axes of numbers, one map for each combination of the other axes. Mean over seeds.
    The efficiency is that of the table of points. In a study of batch sizes, these are one of the two axes. Source:
    the rows of the table."""
    numeric = [axis for axis in results.axes if results.is_numeric(axis)]
    pairs = [pair for pair in itertools.combinations(numeric, 2) if BATCH_SIZE in pair or BATCH_SIZE not in numeric]
    maps = [one for pair in pairs for one in _maps(results, *pair)]
    return Exhibit("Over two axes", tuple(maps)) if maps else None


def _over(
    results: Results,
    points: Iterable[tuple[str, Any, PointRow]],
    x: Scale,
    where: tuple[str, str],
    figure: tuple[str, str],
    weights: Mapping[str, Weights | None],
    *,
    is_error: bool = False,
) -> tuple[Figure, tuple[str, ...]] | None:
    """A figure of points over an axis, with notes on curves that stand for several series.

    Args:
        points: each with the label of its series and its position.
        where: the axis in the name of the file, and in words.
        figure: its name, as in `ROW_FIGURES`, and its title.
        weights: as for `merged`.
        is_error: draw 1 - value.
    """
    name, title = figure
    rows = [
        {"series": label, "kind": MEASURED, x.field: position, **measured(results, row, name, is_error=is_error)}
        for label, position, row in points
        if row.figures[name] is not None
    ]
    if not rows:
        return None
    rows, series, notes, _ = merged(rows, weights, (x.field, name, "low", "high"))
    y = Scale(name, title, base=10 if is_error and all(row[name] > 0 for row in rows) else 0)
    tells = {"series": "series", "seeds": "seeds", "doubts": "doubts"}
    curves = Curves(x, y, series, marks=marks_of(rows), tells=tells, joined=not x.names)
    heading = f"{title.partition(' (')[0].capitalize()} over {where[1]}"
    return curves.figure(file_name(f"{name}_over_{where[0]}"), heading, rows), notes


def _axis_scale(results: Results, axis: str) -> Scale:
    """The axis of a study as that of a drawing: by powers of two if its numbers are ten times as large at the end."""
    values = results.values(axis)
    if not results.is_numeric(axis):
        return Scale("value", in_words(axis), names=[value_text(value) for value in values])
    return Scale("value", in_words(axis), base=2 if 0 < 10 * min(values) <= max(values) else 0, ticks=sorted(values))


_MAPPED = {
    "samples_per_s": ("Samples a second", number),
    "seconds_to_target": ("Seconds to the target", seconds),
    "efficiency": ("Efficiency", share),
    "validation": ("Validation", score),
}


def _maps(results: Results, across: str, up: str) -> Iterator[Figure]:
    target = results.study.target is not None
    maps = results.along(across, up)
    for label, rows in maps.items():
        for name, (title, form) in _MAPPED.items():
            if name == ("validation" if target else "seconds_to_target"):
                continue  # with a target, every trial ends at about the same value
            if name == "validation":
                title = f"{title} {results.metric.title}"
            if name == "efficiency" and not {across, up} & set(DEVICE_AXES):
                continue
            cells = [_cell(row, across, up, name, form) for row in rows]
            known = [cell["value"] for cell in cells if cell["value"] is not None and math.isfinite(cell["value"])]
            if not known:
                continue
            x = Scale("across", in_words(across), names=[value_text(value) for value in sorted(results.values(across))])
            rising = sorted(results.values(up), reverse=True)
            y = Scale("up", in_words(up), names=[value_text(value) for value in rising])
            file = file_name(name, across, up, *([label] if len(maps) > 1 else []))
            drawing = heat_map(x, y, {"text": title, "seeds": "seeds"}, (min(known) + max(known)) / 2)
            what = f"{title} by {x.title} and {y.title}, {label}: from {form(min(known))} to {form(max(known))}."
            yield Figure(file, f"{title}: {label}", what, cells, drawing)


def _cell(row: PointRow, across: str, up: str, name: str, form: Callable[[float | None], str]) -> dict[str, Any]:
    """A cell with the mean of the seeds that have the figure. Its text says how many they are if others lack it."""
    found = row.efficiency if name == "efficiency" else row.figures[name]
    cell = {"across": value_text(row.point[across]), "up": value_text(row.point[up])}
    if found is None:
        absent = _NOT_REACHED if name == "seconds_to_target" else form(None)
        return {**cell, "value": None, "seeds": row.seeds, "text": absent}
    text = shown(replace(found, deviation=None), form)
    return {**cell, "value": found.mean, "seeds": min(found.runs, row.seeds), "text": text}


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
    points = [
        (series_label(row.point, (axis,)), sum(row.summary.partition), row)
        for row in results.rows
        if row.summary is not None
    ]
    points.sort(key=lambda point: point[1])
    where = (_ACROSS, "the number of components")
    x = Scale(_ACROSS, "number of components", base=2, ticks=sorted({number for _, number, _ in points}))
    found = (
        _over(results, points, x, where, (split, score), {}, is_error=metric.share),
        _over(results, points, x, where, _STEP_TIME, {}),
    )
    figures = tuple(figure for figure, _ in filter(None, found))
    return Exhibit(_OVER_COMPONENTS, figures) if figures else None
