"""Figures of scaling studies: step time, speed-up and efficiency."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from alray.report.drawing import IDEAL, MEASURED, PREDICTED, Curves, Scale, colours_of, error_bar
from alray.report.figure import Exhibit, Figure, Series
from alray.report.spread import Spread, shown
from alray.studies.busy import is_disturbed
from alray.studies.doubt import interval_of_ratio
from alray.studies.figures.trouble import marks_of, measured, trouble
from alray.studies.results import Results
from alray.studies.scaling import Scaling

_KINDS = (MEASURED, PREDICTED, IDEAL)
_TELLS = {"series": "series", "step_time_s": "step time, s", "seeds": "seeds", "doubts": "doubts"}


def device_scaling(results: Results) -> Exhibit | None:
    """Step time against the number of devices, stages times replicas (median over the mini-batches after warm-up, mean
    over seeds), the speed-up and the efficiency; the bars are 90 % intervals by Student's t. Another shape marks a
    point where a seed did not come to its end or learned next to nothing. The work of a mini-batch is its samples times
    the components that they pass. The speed-up is the work a second over that of the point on the fewest devices with
    otherwise the same values; the efficiency is the speed-up divided by the ratio of the devices. Strong scaling keeps
    the work; weak scaling keeps the work of each device, where one component that does not grow, such as an embedding,
    is left out. Dashed lines are the plan's predictions, dotted ones the ideal. Where the machine was busy, nothing is
    concluded from the times."""
    found = results.scaling
    if found is None:
        return None
    kind = "scaling of a growing network" if found.kind == "growing" else f"{found.kind} scaling"
    drawn = (
        ("step_time", "Step time", Scale("step_time_s", "step time (seconds)", base=10), _times(results, found)),
        ("speed_up", "Speed-up", Scale("speed_up", "speed-up"), _gains(results, found, "speed_up")),
        ("efficiency", "Efficiency", Scale("efficiency", "efficiency"), _gains(results, found, "efficiency")),
    )
    concluded = () if any(map(is_disturbed, results.records)) else tuple(_conclusions(found))
    figures = tuple(_figure(found, name, f"{title}, {kind}", y, rows) for name, title, y, rows in drawn)
    return Exhibit(f"{kind[0].upper()}{kind[1:]}", figures, concluded)


def _figure(found: Scaling, name: str, title: str, y: Scale, rows: list[dict[str, Any]]) -> Figure:
    labels = list(dict.fromkeys(row["series"] for row in rows if row["kind"] == MEASURED))
    others = list(dict.fromkeys(row["series"] for row in rows if row["series"] not in labels))
    series = (*colours_of(labels), *(Series(each, "--soft") for each in others))
    devices = sorted({row["devices"] for row in rows if row["kind"] == MEASURED})
    kinds = tuple(kind for kind in _KINDS if any(row["kind"] == kind for row in rows))
    x = Scale("devices", found.devices, ticks=devices, form="d")
    curves = Curves(x, y, series, kinds, marks=marks_of(rows), tells=_TELLS)
    what = f"{title} against the number of {found.devices}: {', '.join(labels)}."
    return curves.figure(name, title, rows, what)


def _row(label: str, kind: str, devices: int, **values: Any) -> dict[str, Any]:
    return {"series": label, "kind": kind, "devices": devices, **values}


def _times(results: Results, found: Scaling) -> list[dict[str, Any]]:
    rows = []
    for label, points in found.series.items():
        for point in points:
            rows.append(_row(label, MEASURED, point.devices, **measured(results, point.row, "step_time_s")))
            if point.predicted_s is not None:
                rows.append(_row(label, PREDICTED, point.devices, step_time_s=point.predicted_s))
            ideal_s = (point.base or point).step_time_s.mean * point.work / point.more
            rows.append(_row(label, IDEAL, point.devices, step_time_s=ideal_s))
    return rows


def _gains(results: Results, found: Scaling, name: Literal["speed_up", "efficiency"]) -> list[dict[str, Any]]:
    """The speed-up or the efficiency: measured, predicted and ideal. A series that counts from more devices
    than the others says so by its name."""
    rows = []
    counts = [point.devices for points in found.series.values() for point in points]
    fewest, most = min(counts), max(counts)
    for label, points in found.series.items():
        first = min((point.base or point).devices for point in points)
        counted = label if first == fewest else f"{label}, relative to {first} {found.devices}"
        for point in points:
            gain: Spread = getattr(point, name)
            fields = {"step_time_s": point.step_time_s.mean, "seeds": point.row.seeds}
            if point.base is not None:
                factor = point.work / (point.more if name == "efficiency" else 1.0)
                fields |= error_bar(interval_of_ratio(results, "step_time_s", point.base.row, point.row, factor))
            fields |= trouble(results, point.row, "step_time_s")
            rows.append(_row(counted, MEASURED, point.devices, **{name: gain.mean}, **fields))
            if point.predicted is not None:
                rows.append(_row(counted, PREDICTED, point.devices, **{name: getattr(point.predicted, name)}))
    for devices in (fewest, most):
        rows.append(_row(IDEAL, IDEAL, devices, **{name: devices / fewest if name == "speed_up" else 1.0}))
    return rows


def _conclusions(found: Scaling) -> Iterator[str]:
    for label, points in found.series.items():
        if len(points) > 1:
            last = points[-1]
            fewest = (last.base or last).devices
            work = f" for {last.work:.3g} times the work" if found.kind == "growing" else ""
            yield (
                f"{label}: from {fewest} to {last.devices} {found.devices} the speed-up is "
                f"{shown(last.speed_up, _two)}{work}, the efficiency {shown(last.efficiency, _two)}."
            )


def _two(value: float | None) -> str:
    return f"{value:.2f}"
