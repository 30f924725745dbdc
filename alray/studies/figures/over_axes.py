"""Figures of any study: its main figures over the first axis, heat maps over two axes, and those of a study that cuts
one network into different numbers of components."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from alray.config.study.points import in_words, series_label, value_text
from alray.config.study.section import BATCH_SIZE, SCORES
from alray.report.drawing import MEASURED, Curves, Scale, colours_of, error_bar, heat_map
from alray.report.figure import Exhibit, Figure, file_name
from alray.report.same_weights import merged
from alray.report.spread import shown
from alray.report.text import number, score, seconds, share
from alray.studies.confidence import Interval
from alray.studies.doubt import interval_of_point
from alray.studies.figures.trouble import marks_of, trouble
from alray.studies.results import Results
from alray.studies.scaling import DEVICE_AXES
from alray.studies.table import PointRow, weights_along

_NOT_REACHED = "not reached"
_ACROSS = "components"
_OVER_COMPONENTS = "Over the number of components"


def over_one_axis(results: Results) -> Exhibit | None:
    """The best validation accuracy (or metric of another task) and the step time (median over the mini-batches after
    warm-up) of every point over the first axis of numbers, or else the first axis, one series for each combination of
    the other axes. Mean over seeds; the bar, from three seeds on, is its 90 % interval by Student's t. Another shape
    marks a point where a seed did not come to its end or learned next to nothing. Source: the rows of the table."""
    if not results.compares_ends or results.axis_of_cuts is not None:
        return None
    axis = next(filter(results.is_numeric, results.axes), results.axes[0])
    found = (
        _over(results, axis, "validation", f"validation {results.metric.title}"),
        _over(results, axis, "step_time_s", "step time (seconds)"),
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


def _over(results: Results, axis: str, name: str, title: str) -> tuple[Figure, tuple[str, ...]] | None:
    """A figure of the rows over an axis, with notes on curves that stand for several series."""
    rows: list[dict[str, Any]] = []
    numeric, along = results.is_numeric(axis), results.along(axis)
    for label, each in along.items():
        for row in each:
            spread = row.figures[name]
            if spread is not None:
                value = row.point[axis] if numeric else value_text(row.point[axis])
                mean = {"series": label, "kind": MEASURED, "value": value, name: spread.mean}
                bar = error_bar(interval_of_point(results, row, name))
                rows.append({**mean, "seeds": min(spread.runs, row.seeds), **bar, **trouble(results, row, name)})
    if not rows:
        return None
    series = colours_of(list(dict.fromkeys(row["series"] for row in rows)))
    notes: tuple[str, ...] = ()
    if name in SCORES:
        weights = {label: weights_along(each) for label, each in along.items()}
        rows, series, notes, _ = merged(rows, series, weights, ("value", name, "low", "high"))
    tells = {"series": "series", "seeds": "seeds", "doubts": "doubts"}
    scale = _axis_scale(results, axis)
    curves = Curves(scale, Scale(name, title), series, marks=marks_of(rows), tells=tells, joined=numeric)
    heading = f"{title.partition(' (')[0].capitalize()} over {in_words(axis)}"
    what = f"{heading}: {', '.join(each.label for each in series)}."
    return curves.figure(file_name(f"{name}_over_{axis}"), heading, what, rows), notes


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
    found = (
        _over_components(results, axis, split, score, is_error=metric.share),
        _over_components(results, axis, "step_time_s", "step time (seconds)"),
    )
    figures = tuple(figure for figure in found if figure is not None)
    return Exhibit(_OVER_COMPONENTS, figures) if figures else None


def _over_components(results: Results, axis: str, name: str, title: str, *, is_error: bool = False) -> Figure | None:
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
    heading = f"{title.partition(' (')[0].capitalize()} {_OVER_COMPONENTS.lower()}"
    return curves.figure(f"{name}_over_components", heading, f"{heading}: {', '.join(labels)}.", rows)
