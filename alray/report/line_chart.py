"""A line chart as inline SVG, coloured by the page's style sheet so that it follows light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from alray.report.axis import Axis, axis_over, spans_decades, tick_label
from alray.report.curves import Curve, Point, num_not_finite, run_length, thin

NUM_COLOURS = 8  # classes c0..c7 of page.css; after them the same colours dashed (d1..d3)

_WIDTH, _HEIGHT = 520, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 12, 10, 40  # margins, pixels


def line_chart(curves: Sequence[Curve], *, title: str, y_label: str, x_label: str, scale: str = "auto") -> str:
    """A `<figure>` with one line per curve, its legend and what was done to the values.

    `scale` of the values: `auto` takes powers of ten where the values span more than a factor of 30; `even`
    never. Curves without a single finite value are named in the legend and not drawn.
    """
    drawn = [(index, curve, thin(curve.points)) for index, curve in enumerate(curves)]
    values = [value for _, _, points in drawn for _, value in points]
    values += [value for curve in curves for _, *ends in curve.band for value in ends]
    if not values:
        return f'<p class="none">{escape(title)}: no finite value was recorded.</p>'
    steps = [step for _, _, points in drawn for step, _ in points]
    x = axis_over(steps, _LEFT, _WIDTH - _RIGHT)
    log = scale == "auto" and spans_decades(values)
    y = axis_over(values, _HEIGHT - _BOTTOM, _TOP, log=log)
    bands = "".join(_band(curve.band, x, y, index) for index, curve, _ in drawn if curve.band)
    lines = "".join(_line(points, x, y, index, curve.label) for index, curve, points in drawn if points)
    svg = (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{_frame(x, y, x_label, y_label, whole=all(step == round(step) for step in steps))}{bands}{lines}</svg>"
    )
    notes = _notes(curves, log=log)
    caption = f"<b>{escape(title)}</b>{' · ' if notes else ''}{notes}"
    return f"<figure><figcaption>{caption}</figcaption>{svg}{_legend(curves)}</figure>"


def colour_classes(index: int) -> str:
    """Style sheet classes of the line with this number."""
    dash = (index // NUM_COLOURS) % 4
    return f"c{index % NUM_COLOURS}" + (f" d{dash}" if dash else "")


def _line(points: Sequence[Point], x: Axis, y: Axis, index: int, label: str) -> str:
    title = f"<title>{escape(label)}</title>"
    if len(points) == 1:
        step, value = points[0]
        dot = f'cx="{x.pixel(step):.1f}" cy="{y.pixel(value):.1f}" r="3"'
        return f'<circle class="dot {colour_classes(index)}" {dot}>{title}</circle>'
    path = " ".join(f"{x.pixel(step):.1f},{y.pixel(value):.1f}" for step, value in points)
    return f'<polyline class="line {colour_classes(index)}" points="{path}">{title}</polyline>'


def _band(band: Sequence[tuple[float, float, float]], x: Axis, y: Axis, index: int) -> str:
    """The area between lowest and highest values, beneath the line."""
    upper = [f"{x.pixel(at):.1f},{y.pixel(high):.1f}" for at, _, high in band]
    lower = [f"{x.pixel(at):.1f},{y.pixel(low):.1f}" for at, low, _ in reversed(band)]
    return f'<polygon class="band {colour_classes(index)}" points="{" ".join([*upper, *lower])}"/>'


def _frame(x: Axis, y: Axis, x_label: str, y_label: str, *, whole: bool) -> str:
    """Grid, tick labels and the names of both axes; whole: whether there is nothing between whole numbers of x."""
    parts = []
    for value in y.ticks():
        at = y.pixel(value)
        parts.append(f'<line class="grid" x1="{x.start:g}" x2="{x.end:g}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="tick end" x="{x.start - 6:g}" y="{at + 3.5:.1f}">{tick_label(value)}</text>')
    for value in x.ticks():
        at = x.pixel(value)
        if value >= 0 and not (whole and value != round(value)):
            parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{y.end:g}" y2="{y.start:g}"/>')
            parts.append(f'<text class="tick mid" x="{at:.1f}" y="{y.start + 15:g}">{tick_label(value)}</text>')
    middle = (y.start + y.end) / 2
    parts.append(
        f'<text class="label mid" x="{(x.start + x.end) / 2:g}" y="{_HEIGHT - 6}">{escape(x_label)}</text>'
        f'<text class="label mid" transform="translate(12 {middle:g}) rotate(-90)">{escape(y_label)}</text>'
    )
    return "".join(parts)


def _legend(curves: Sequence[Curve]) -> str:
    entries = "".join(
        f'<li><svg class="key" viewBox="0 0 26 8"><line class="line {colour_classes(index)}" x1="1" x2="25" '
        f'y1="4" y2="4"/></svg>{escape(curve.label)}</li>'
        for index, curve in enumerate(curves)
    )
    return f'<ul class="legend">{entries}</ul>'


def _notes(curves: Sequence[Curve], *, log: bool) -> str:
    notes = []
    if log:
        notes.append("logarithmic scale")
    length = run_length(max(len(curve.points) for curve in curves))
    if length > 1:
        notes.append(f"each point is the mean of {length:,} neighbours")
    if left_out := num_not_finite(curves):
        notes.append(f"{left_out:,} values that are not finite left out")
    return "; ".join(notes)
