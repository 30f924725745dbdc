"""Line charts and stacked bars, laid out in pixels; `templates/charts.html` draws them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

MAX_POINTS = 300  # points of a drawn curve: about one for every two pixels
NUM_COLOURS = 8  # classes c0 to c7 of page.css; later curves reuse the colours with dashes (d1 to d3)

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A curve of a chart: points (x, value) in order of x. x is often the number of mini-batches completed.

    band: (x, lowest value, highest value) of the runs whose mean the curve is; empty for a single run.
    """

    label: str
    points: tuple[Point, ...]
    band: tuple[tuple[float, float, float], ...] = ()


@dataclass(frozen=True)
class Axis:
    """Maps the values `low` to `high` onto the pixels `start` to `end`, evenly or by powers of ten (`log`).

    `start` may be larger than `end`, as on a vertical axis.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def pixel(self, value: float) -> float:
        """Where a value lies, to a tenth of a pixel."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return round(self.start + (at - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """About five round values on the axis."""
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)


class Line(NamedTuple):
    """A curve of a chart in pixels. A curve without a finite value has no points and stands in the legend only."""

    label: str
    colour: str  # classes of page.css
    points: list[Point]
    band: list[Point]  # outline of the area between the lowest and the highest values


@dataclass(frozen=True)
class LineChart:
    """A line chart. Without any finite value, `x`, `y` and `lines` are empty and a sentence replaces the drawing."""

    WIDTH: ClassVar[int] = 520
    HEIGHT: ClassVar[int] = 250

    title: str
    x_label: str
    y_label: str
    x: Axis | None = None
    y: Axis | None = None
    x_ticks: tuple[tuple[float, str], ...] = ()  # pixel, text
    y_ticks: tuple[tuple[float, str], ...] = ()
    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()  # what was done to the values


def line_chart(
    curves: Sequence[Curve], *, title: str, y_label: str, x_label: str, logarithmic: bool = False
) -> LineChart:
    """Lay out one line for each curve.

    logarithmic: use powers of ten if the values span more than a factor of 30.
    """
    drawn = [thin(curve.points) for curve in curves]
    values = [value for points in drawn for _, value in points]
    values += [value for curve in curves for _, *ends in curve.band for value in ends]
    if not values:
        return LineChart(title, x_label, y_label)
    places = [place for points in drawn for place, _ in points]
    x = axis_over(places, 60, LineChart.WIDTH - 12)
    y = axis_over(values, LineChart.HEIGHT - 40, 10, log=logarithmic and spans_decades(values))
    whole = all(place == round(place) for place in places)  # then there is nothing between whole numbers of x
    x_ticks = [value for value in x.ticks() if value >= 0 and not (whole and value != round(value))]
    return LineChart(
        title,
        x_label,
        y_label,
        x,
        y,
        tuple((x.pixel(value), tick_label(value)) for value in x_ticks),
        tuple((y.pixel(value), tick_label(value)) for value in y.ticks()),
        tuple(
            Line(
                curve.label,
                _colour(index),
                [(x.pixel(place), y.pixel(value)) for place, value in points],
                [(x.pixel(place), y.pixel(high)) for place, _, high in curve.band]
                + [(x.pixel(place), y.pixel(low)) for place, low, _ in reversed(curve.band)],
            )
            for index, (curve, points) in enumerate(zip(curves, drawn, strict=True))
        ),
        tuple(_notes(curves, log=y.log)),
    )


def axis_over(values: Sequence[float], start: float, end: float, *, log: bool = False) -> Axis:
    """An axis that holds all values with some room; almost equal values get more room."""
    low, high = min(values), max(values)
    if log:
        return Axis(low / 1.15, high * 1.15, start, end, log=True)
    size = max(abs(low), abs(high), 1e-9)
    room = 0.04 * (high - low) if high - low > 1e-6 * size else 0.5 * size
    return Axis(low - room, high + room, start, end)


def spans_decades(values: Sequence[float]) -> bool:
    """Whether powers of ten suit the values: all above zero, the largest more than 30 times the smallest."""
    return min(values) > 0 and max(values) > 30 * min(values)


def tick_label(value: float) -> str:
    """The short text of a tick: 1500 as 1,500, 0.00002 as 2e-05."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.0e}"
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def thin(points: Sequence[Point], limit: int = MAX_POINTS) -> list[Point]:
    """At most `limit` points, each the mean of `run_length` neighbours (the last one possibly of fewer).

    Values that are not finite are left out first; `num_not_finite` counts them.
    """
    finite = [point for point in points if math.isfinite(point[1])]
    length = run_length(len(finite), limit)
    return [_mean(finite[start : start + length]) for start in range(0, len(finite), length)]


def run_length(num_points: int, limit: int = MAX_POINTS) -> int:
    """How many neighbouring points are drawn as one: the smallest number that gives at most `limit` points."""
    return max(1, math.ceil(num_points / limit))


def num_not_finite(curves: Sequence[Curve]) -> int:
    """How many values of the curves are infinite or not a number."""
    return sum(not math.isfinite(value) for curve in curves for _, value in curve.points)


class Segment(NamedTuple):
    """One part of a stacked bar, in pixels."""

    part: str
    colour: str  # class of page.css
    share: float
    x: float
    width: float


@dataclass(frozen=True)
class StackedBars:
    """Bars of full width, each divided into parts by their share of the bar."""

    LEFT: ClassVar[int] = 72
    WIDTH: ClassVar[int] = 948  # of a bar; the picture has 12 pixels more on the right

    title: str
    parts: dict[str, str]  # name of a part: its class of page.css
    bars: tuple[tuple[str, tuple[float, ...]], ...]  # label, amount of each part; no amount is negative

    def segments(self, amounts: Sequence[float]) -> list[Segment]:
        """The parts of a bar that are larger than 0, from left to right."""
        total = sum(amounts)
        found: list[Segment] = []
        at = float(self.LEFT)
        for (part, colour), amount in zip(self.parts.items(), amounts, strict=True):
            if amount > 0:
                width = amount / total * self.WIDTH
                found.append(Segment(part, colour, amount / total, round(at, 1), round(width, 1)))
                at += width
        return found


def _colour(index: int) -> str:
    """The style sheet classes of the line with this index."""
    dash = (index // NUM_COLOURS) % 4
    return f"c{index % NUM_COLOURS}" + (f" d{dash}" if dash else "")


def _notes(curves: Sequence[Curve], *, log: bool) -> list[str]:
    notes = ["logarithmic scale"] if log else []
    length = run_length(max(len(curve.points) for curve in curves))
    if length > 1:
        notes.append(f"each point is the mean of {length:,} neighbours")
    if left_out := num_not_finite(curves):
        notes.append(f"{left_out:,} values that are not finite left out")
    return notes


def _even_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    stride = max(1, len(decades) // 6)
    factors = (1, 3) if len(decades) <= 4 else (1,)
    values = [factor * 10.0**power for power in decades[::stride] for factor in factors]
    return [value for value in values if low <= value <= high]


def _mean(points: Sequence[Point]) -> Point:
    return (
        sum(point[0] for point in points) / len(points),
        math.fsum(point[1] for point in points) / len(points),
    )
