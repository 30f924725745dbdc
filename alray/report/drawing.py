"""Drawings in Vega-Lite, made with Altair: curves over an axis, and heat maps.

The rows of curves have `series`, `kind` (whether a value was measured, predicted, ...), the fields of the two axes,
perhaps `low` and `high` (the ends of an error bar) and `mark` (what the shape of a point tells).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

from alray.report.compare import Spread
from alray.report.figure import DATA, Figure, Series

MEASURED, PREDICTED, IDEAL, PUBLISHED = "measured", "predicted", "ideal", "published"
"""Kinds of rows. Those that were measured have points, the others are lines only."""

BEYOND = "not reached"
"""The mark of a value that is larger than what is drawn: an open triangle, on no line."""

_DASHES = {
    MEASURED: "",
    PREDICTED: "6 4",
    IDEAL: "2 3",
    "linear rule": "6 4",
    "square-root rule": "2 3",
    PUBLISHED: "10 3 2 3",
}
_SHAPES = ("circle", "square", "diamond", "cross", "triangle-down", "triangle-right")
_ZOOM = "wheel![event.ctrlKey]"


@dataclass(frozen=True)
class Scale:
    """A field of the rows as an axis. base: of the logarithm, 0 for even steps. ticks: where the axis has marks.

    names: the values, in order, where they are no numbers.
    """

    field: str
    title: str
    base: int = 0
    ticks: Sequence[float] = ()
    names: Sequence[str] = ()
    form: str = ",.4~g"  # of the numbers, as d3 writes them
    from_zero: bool = False

    def options(self) -> dict[str, Any]:
        """The options of a channel of Altair."""
        shown = {"title": self.title, "shorthand": f"{self.field}:{'N' if self.names else 'Q'}"}
        if self.names:
            angle = -35 if sum(map(len, self.names)) > 60 else 0
            return {**shown, "sort": list(self.names), "axis": alt.Axis(labelAngle=angle, labelLimit=160)}
        kind: dict[str, Any] = {"type": "log", "base": self.base} if self.base else {"zero": self.from_zero}
        if len(set(self.ticks)) > 1:
            kind["domain"] = [min(self.ticks), max(self.ticks)]
        scale = alt.Scale(**kind, nice=False, padding=0 if self.from_zero else 12)
        axis = alt.Axis(format=self.form, values=list(self.ticks) or alt.Undefined)
        return {**shown, "scale": scale, "axis": axis}


@dataclass(frozen=True)
class Curves:
    """Curves over an axis. tells: field -> title of what a point tells when the pointer is on it, beside its place."""

    x: Scale
    y: Scale
    series: Sequence[Series]
    kinds: Sequence[str] = (MEASURED,)
    marks: Sequence[str] = ()
    tells: Mapping[str, str] = field(default_factory=dict)
    joined: bool = True  # whether lines join the points of a series
    each: str = "series"  # the field whose values have a line each
    size: int = 55  # of the points, in square pixels

    def figure(self, name: str, title: str, description: str, rows: list[dict[str, Any]]) -> Figure:
        """These curves, drawn of rows. For the arguments see `Figure`."""
        drawing = self._drawing(bars=any("low" in row for row in rows))
        return Figure(name, title, description, rows, drawing, tuple(self.series), self._styles)

    @property
    def _styles(self) -> dict[str, str]:
        dashes = {kind: _DASHES[kind] for kind in self.kinds} if len(self.kinds) > 1 else {}
        return dashes | self._shapes

    @property
    def _shapes(self) -> dict[str, str]:
        shapes = dict(zip((mark for mark in self.marks if mark != BEYOND), _SHAPES, strict=False))
        return shapes | ({BEYOND: "triangle-up"} if BEYOND in self.marks else {})

    def _drawing(self, *, bars: bool) -> dict[str, Any]:
        """The parameter `hidden` holds the labels of the series that are not drawn."""
        layers = [*(self._lines() if self.joined else ()), *(self._error_bars() if bars else ()), *self._points()]
        chart = alt.layer(*layers, data=alt.NamedData(name=DATA))
        chart = chart.transform_filter("indexof(hidden, datum.series) < 0")
        zoom = alt.selection_interval(name="zoom", bind="scales", zoom=_ZOOM)
        return _plain(chart.add_params(alt.param(name="hidden", value=[]), zoom))

    def _lines(self) -> list[alt.Chart]:
        drawn = alt.Chart().transform_filter(f"datum.mark !== '{BEYOND}'")
        line = drawn.mark_line().encode(**self._placed(), detail=[f"{self.each}:N", "series:N"])
        if len(self.kinds) == 1:
            return [line]
        patterns = [[int(each) for each in _DASHES[kind].split()] or [1, 0] for kind in self.kinds]
        widths = [2 if kind == MEASURED else 1.3 for kind in self.kinds]
        dashes, thick = (alt.Scale(domain=list(self.kinds), range=each) for each in (patterns, widths))
        return [
            line.encode(
                strokeDash=alt.StrokeDash("kind:N", scale=dashes, title=None, legend=_legend(self.kinds)),
                strokeWidth=alt.StrokeWidth("kind:O", scale=thick, legend=None),
            )
        ]

    def _error_bars(self) -> list[alt.Chart]:
        drawn = alt.Chart().transform_filter("isValid(datum.low)").mark_rule(strokeWidth=1.2)
        placed = {**self._placed(), "y": alt.Y("low:Q", **self._second()), "y2": alt.Y2("high:Q")}
        return [drawn.encode(**placed)]

    def _points(self) -> list[alt.Chart]:
        points = alt.Chart().transform_filter(f"datum.kind === '{MEASURED}'")
        told = {self.x.field: self.x.title, self.y.field: self.y.title, **self.tells}
        placed = {**self._placed(), "tooltip": [_told(name, title) for name, title in told.items()]}
        if not self.marks:
            return [points.mark_point(filled=True, size=self.size, opacity=1).encode(**placed)]
        scale = alt.Scale(domain=list(self._shapes), range=list(self._shapes.values()))
        placed["shape"] = alt.Shape("mark:N", scale=scale, title=None, legend=_legend(list(self._shapes)))
        filled = points.transform_filter(f"datum.mark !== '{BEYOND}'").mark_point(filled=True, size=60, opacity=1)
        hollow = points.transform_filter(f"datum.mark === '{BEYOND}'").mark_point(filled=False, size=70, opacity=1)
        return [each.encode(**placed) for each in ([filled, hollow] if BEYOND in self.marks else [filled])]

    def _placed(self) -> dict[str, Any]:
        scale = alt.Scale(domain=[each.label for each in self.series], range=[each.colour for each in self.series])
        return {
            "x": alt.X(**self.x.options()),
            "y": alt.Y(**self.y.options()),
            "color": alt.Color("series:N", scale=scale, title=None, legend=_legend(self.series)),
        }

    def _second(self) -> dict[str, Any]:
        options = self.y.options()
        del options["shorthand"]
        return options


def heat_map(x: Scale, y: Scale, value: str, tells: Mapping[str, str], middle: float) -> dict[str, Any]:
    """A field of rectangles, each with its value. The rows have the names of both axes, `value` and its `text`.

    middle: values above it stand on a bright rectangle.
    """
    placed: dict[str, Any] = {"x": alt.X(**x.options()), "y": alt.Y(**y.options())}
    tooltip = [_told(name, title) for name, title in {x.field: x.title, y.field: y.title, **tells}.items()]
    base = alt.Chart().encode(**placed, tooltip=tooltip)
    cells = base.transform_filter(f"isValid(datum.{value})").mark_rect()
    cells = cells.encode(color=alt.Color(f"{value}:Q", scale=alt.Scale(scheme="viridis"), legend=None))
    texts = {"text": alt.Text("text:N")}
    bright = base.transform_filter(f"datum.{value} > {middle!r}").mark_text(color="black").encode(**texts)
    dark = base.transform_filter(f"isValid(datum.{value}) && datum.{value} <= {middle!r}")
    absent = base.transform_filter(f"!isValid(datum.{value})").mark_text().encode(**texts)
    layers = [cells, bright, dark.mark_text(color="white").encode(**texts), absent]
    return _plain(alt.layer(*layers, data=alt.NamedData(name=DATA)))


def colours_of(labels: Sequence[str]) -> tuple[Series, ...]:
    """A series for each label, in the colours of page.css. After eight series they are used again."""
    return tuple(Series(label, f"--c{place % 8}") for place, label in enumerate(labels))


def error_bar(spread: Spread) -> dict[str, float]:
    """The ends of a bar of one standard deviation; none for a single run, nor where it would reach 0, which a
    logarithmic axis does not have."""
    deviation = spread.deviation
    if not deviation or deviation >= spread.mean:
        return {}
    return {"low": spread.mean - deviation, "high": spread.mean + deviation}


def _told(name: str, title: str) -> alt.Tooltip:
    return alt.Tooltip(field=name, title=title, type="nominal")


def _legend(entries: Sequence[Any]) -> Any:
    return alt.Legend(orient="right") if len(entries) > 1 else None


def _plain(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The drawing without what Altair adds."""
    drawing: dict[str, Any] = chart.to_dict()
    return {key: value for key, value in drawing.items() if key not in ("$schema", "config", "datasets")}
