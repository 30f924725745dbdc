"""Drawings in Vega-Lite: curves over an axis.

The rows of curves have `series`, `kind` (whether a value was measured, predicted, ...), the fields of the two axes,
perhaps `low` and `high` (the ends of an error bar or of a band) and `mark` (what the shape of a point tells).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any

from alray.report.figure import ROWS_NAME, Figure, Series

MEASURED = "measured"
PREDICTED = "predicted"
IDEAL = "ideal"
"""Kinds of rows. Those that were measured have points, the others are lines only."""

BEYOND = "not reached"
"""The mark of a value that is larger than what is drawn: an open triangle, on no line."""

PLAIN_NUMBER = ",.10~g"
"""How d3 writes numbers of any size without a power of ten."""

_DASHES = {
    MEASURED: "",
    PREDICTED: "6 4",
    IDEAL: "2 3",
}
_PATTERNS = ("", "6 4", "2 3", "10 3 2 3")
"""Dashes of series that have the same colour."""
_LOW = "shown_low"
"""The lower end of an error bar as it is drawn: a logarithmic axis has no 0, so a bar that reaches it ends below all
other values."""
_NUM_COLOURS = 16
_MOST_SLANTED = 20
"""Names below an axis that are slanted. More of them would overlap, and stand upright."""
_SHAPES = ("circle", "square", "diamond", "cross", "triangle-down", "triangle-right")


@dataclass(frozen=True)
class Scale:
    """A field of the rows as an axis.

    Attributes:
        base: of the logarithm, 0 for even steps.
        ticks: where the axis has marks.
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
        """This scale as a channel of Vega-Lite."""
        shown: dict[str, Any] = {"field": self.field, "title": self.title}
        if self.names:
            slanted = -35 if len(self.names) <= _MOST_SLANTED else -90
            angle = slanted if len(self.names) * max(map(len, self.names)) > 60 else 0  # each has an equal part
            labels = {"labelAngle": angle, "labelLimit": 300}
            return {**shown, "type": "nominal", "sort": list(self.names), "axis": labels}
        kind: dict[str, Any] = {"type": "log", "base": self.base} if self.base else {"zero": self.from_zero}
        if len(set(self.ticks)) > 1:
            kind["domain"] = [min(self.ticks), max(self.ticks)]
        scale = {**kind, "nice": False, "padding": 0 if self.from_zero else 12}
        axis: dict[str, Any] = {"format": self.form, **({"values": list(self.ticks)} if self.ticks else {})}
        return {**shown, "type": "quantitative", "scale": scale, "axis": axis}

    @property
    def tooltip(self) -> dict[str, Any]:
        """Its value as a line of the text that appears at the pointer."""
        return tell(self.field, self.title, "" if self.names else self.form)


@dataclass(frozen=True)
class Curves:
    """Curves over an axis.

    Attributes:
        series: none: those of the rows, in the order in which they come.
        tells: field -> title of a value that a point shows if pointed at, besides its position.
    """

    x: Scale
    y: Scale
    series: Sequence[Series] = ()
    kinds: Sequence[str] = (MEASURED,)
    marks: Sequence[str] = ()
    tells: Mapping[str, str] = field(default_factory=dict)
    joined: bool = True  # whether lines join the points of a series
    size: int = 55  # of the points, in square pixels
    bands: bool = False  # whether `low` and `high` are the edges of an area instead of an error bar

    def figure(self, name: str, title: str, rows: list[dict[str, Any]], what: str = "") -> Figure:
        """These curves, drawn of rows. For the other arguments see `Figure`.

        Args:
            what: the description. The labels of the series follow it, unless it ends with a full stop. "": the title.
        """
        curves = self if self.series else replace(self, series=series_of(rows))
        labels = ", ".join(each.label for each in curves.series)
        described = what if what.endswith(".") else f"{what or title}: {labels}."
        return Figure(name, title, described, rows, curves._drawing(rows), tuple(curves.series), curves._styles)

    @property
    def _styles(self) -> dict[str, str]:
        if len(self.kinds) > 1:
            return {kind: _DASHES[kind] for kind in self.kinds} | self._shapes
        return self._patterns | self._shapes

    @property
    def _patterns(self) -> dict[str, str]:
        """The dashes of each series where there are more of them than colours."""
        if len(self.series) <= _NUM_COLOURS or not self.joined:
            return {}
        return {each.label: _PATTERNS[index // _NUM_COLOURS % 4] for index, each in enumerate(self.series)}

    @property
    def _shapes(self) -> dict[str, str]:
        shapes = dict(zip((mark for mark in self.marks if mark != BEYOND), _SHAPES, strict=False))
        return shapes | ({BEYOND: "triangle-up"} if BEYOND in self.marks else {})

    def _drawing(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The parameter `hidden` holds the labels of the series that are not drawn."""
        spread = any("low" in row for row in rows)
        spreads = [self._from_low_to_high()] if spread else []
        layers = [*spreads, *(self._lines() if self.joined else ()), *self._points()]
        if not (self.bands or self.x.names) and len({row["series"] for row in rows if "low" in row}) > 1:
            layers = [{**layer, "mark": {**layer["mark"], "xOffset": {"expr": self._aside}}} for layer in layers]
        layers[0]["params"] = [zoom()]
        drawing = {"data": {"name": ROWS_NAME}, **hiding(), "layer": layers}
        if spread:
            drawing["transform"] += [{"calculate": self._low(rows), "as": _LOW}]
        return drawing

    @property
    def _aside(self) -> str:
        """The pixels by which a measured value stands beside its place, where bars of series would cover each other."""
        labels = json.dumps([each.label for each in self.series])
        place = f"indexof({labels}, datum.series) - {(len(self.series) - 1) / 2}"
        return f"datum.kind === '{MEASURED}' ? {min(5, 18 / len(self.series))!r} * ({place}) : 0"

    def _low(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """The lower end of a bar as an expression."""
        if not self.y.base:
            return "datum.low"
        shown = (row.get(field) for row in rows for field in (self.y.field, "low"))
        least = min(value for value in shown if value is not None and value > 0)
        return f"isValid(datum.low) ? max(datum.low, {0.8 * least!r}) : null"

    def _lines(self) -> list[dict[str, Any]]:
        encoding = self._placed()
        if len(self.kinds) > 1:
            patterns = [_dashes(_DASHES[kind]) for kind in self.kinds]
            widths = [2 if kind == MEASURED else 1.3 for kind in self.kinds]
            dashes, thick = ({"domain": list(self.kinds), "range": each} for each in (patterns, widths))
            of = {"field": "kind", "title": None}
            encoding["strokeDash"] = {**of, "type": "nominal", "scale": dashes, "legend": _legend(self.kinds)}
            encoding["strokeWidth"] = {**of, "type": "ordinal", "scale": thick, "legend": None}
        elif self._patterns:
            scale = {"domain": list(self._patterns), "range": [_dashes(each) for each in self._patterns.values()]}
            encoding["strokeDash"] = {**encoding["color"], "scale": scale}
        return [
            {"transform": [{"filter": f"datum.mark !== '{BEYOND}'"}], "mark": {"type": "line"}, "encoding": encoding}
        ]

    def _from_low_to_high(self) -> dict[str, Any]:
        """Error bars, or bands."""
        mark: dict[str, Any] = {"type": "rule", "strokeWidth": 1.2}
        if self.bands:
            mark = {"type": "area", "opacity": 0.16, "aria": False}
        ends = {"y": {**self.y.options(), "field": _LOW}, "y2": {"field": "high"}}
        return {"transform": [{"filter": "isValid(datum.low)"}], "mark": mark, "encoding": {**self._placed(), **ends}}

    def _points(self) -> list[dict[str, Any]]:
        measured = {"filter": f"datum.kind === '{MEASURED}'"}
        placed = {**self._placed(), "tooltip": [self.x.tooltip, self.y.tooltip, *starmap(tell, self.tells.items())]}
        if not self.marks:
            if len(self.series) > _NUM_COLOURS:
                labels = [each.label for each in self.series]
                shapes = [_SHAPES[index // _NUM_COLOURS % len(_SHAPES)] for index in range(len(labels))]
                placed["shape"] = {**placed["color"], "scale": {"domain": labels, "range": shapes}}
            mark = {"type": "point", "filled": True, "size": self.size, "opacity": 1}
            if self.size < 55:  # the pointer need not hit such a small point exactly
                mark |= {"stroke": "transparent", "strokeWidth": 9}
            return [{"transform": [measured], "mark": mark, "encoding": placed}]
        scale = {"domain": list(self._shapes), "range": list(self._shapes.values())}
        legend = _legend(list(self._shapes))
        placed["shape"] = {"field": "mark", "type": "nominal", "scale": scale, "title": None, "legend": legend}
        return [
            {
                "transform": [measured, {"filter": f"datum.mark {sign} '{BEYOND}'"}],
                "mark": {"type": "point", "filled": filled, "size": size, "opacity": 1},
                "encoding": placed,
            }
            for sign, filled, size in (("!==", True, 60), ("===", False, 70))
            if filled or BEYOND in self.marks
        ]

    def _placed(self) -> dict[str, Any]:
        """The channels of all marks. Series stand next to each other where the values of the axis are names."""
        placed = {"x": self.x.options(), "y": self.y.options(), "color": colour_of(self.series)}
        if self.x.names and len(self.series) > 1:
            domain = [each.label for each in self.series]
            placed["xOffset"] = {"field": "series", "type": "nominal", "scale": {"domain": domain}}
        return placed


def colour_of(series: Sequence[Series]) -> dict[str, Any]:
    """The channel that gives each series its colour."""
    scale = {"domain": [each.label for each in series], "range": [each.colour for each in series]}
    return {
        "field": "series",
        "type": "nominal",
        "scale": scale,
        "title": None,
        "legend": _legend([each.label for each in series]),
    }


def hiding() -> dict[str, Any]:
    """The parts of a drawing that let a page hide its series: the parameter `hidden` holds the labels of these."""
    return {
        "params": [{"name": "hidden", "value": []}],
        "transform": [{"filter": "indexof(hidden, datum.series) < 0"}],
    }


def zoom(*channels: str, shown: tuple[float, float] | None = None) -> dict[str, Any]:
    """The parameter of a layer whose axes can be moved and zoomed: these channels, or both.

    Args:
        shown: what of the horizontal axis a page shows at first.
    """
    select: dict[str, Any] = {"type": "interval", "zoom": "wheel![event.ctrlKey]"}
    select |= {"encodings": list(channels)} if channels else {}
    return {
        "name": "zoom",
        "select": select,
        "bind": "scales",
        **({"value": {"x": list(shown)}} if shown else {}),
    }


def colours_of(labels: Sequence[str]) -> tuple[Series, ...]:
    """A series for each label, in the colours of page.css. After sixteen series they are used again, with other dashes
    and shapes."""
    return tuple(Series(label, f"--c{index % _NUM_COLOURS}") for index, label in enumerate(labels))


def series_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Series, ...]:
    """The series of rows, in the order in which they come."""
    return colours_of(list(dict.fromkeys(row["series"] for row in rows)))


def error_bar(interval: tuple[float, float] | None) -> dict[str, float]:
    """The ends of an interval as those of a bar or a band, which has no width where the values agree; none where the
    interval is not known."""
    return {} if interval is None else {"low": interval[0], "high": interval[1]}


def tell(name: str, title: str, form: str = "") -> dict[str, Any]:
    """A field as a line of the text that appears at the pointer.

    Args:
        form: of a number, as d3 writes it.
    """
    kind = {"type": "quantitative", "format": form} if form else {"type": "nominal"}
    return {"field": name, "title": title, **kind}


def _dashes(pattern: str) -> list[int]:
    return [int(each) for each in pattern.split()] or [1, 0]


def _legend(entries: Sequence[str]) -> dict[str, Any] | None:
    """Below the drawing: beside it, it would take half of a paper's column."""
    if len(entries) < 2:
        return None
    return {"orient": "bottom", "columns": 1 if max(map(len, entries)) > 24 else 2, "symbolOpacity": 1}
