"""Charts of a timeline, as plain text and as SVG: one row for each stage, time runs to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from alray.plan.timeline import TimedAction
from alray.schedules.actions import KINDS, parse

WAITS = ("send_wait", "receive_wait", "idle")  # names in a measured timeline that are not actions

_NAMES = {
    "F": "forward",
    "L": "labels and losses",
    "B": "backward",
    "I": "input gradient",
    "G": "weight gradient",
    "U": "update",
    "E": "inference up",
    "D": "inference down",
    ">": "message",
    ".": "waiting",
}
# Dark enough for white letters, light enough to stand on a dark page.
_COLOURS = {
    "F": "#3b75af",
    "L": "#2f8480",
    "B": "#c0601f",
    "U": "#4f8a3c",
    "E": "#7564c0",
    "D": "#a3548c",
    "I": "#a8763e",
    "G": "#8a3d3d",
    ">": "#7f7f7f",
}


def chart_text(bars: Sequence[TimedAction], *, width: int = 100) -> str:
    """The bars as lines of plain text, with a scale and a legend below. The time axis is `width` characters long.

    A bar shows its letter, then dashes up to its end. If there is room, the mini-batch follows the letter, and `.` and
    the micro-batch unless that is 0. Bars shorter than half a character are left out. Raises ValueError if there is
    nothing to draw.
    """
    first, seconds = _extent(bars)
    stages = 1 + max(bar.stage for bar in bars)
    rows = [["."] * width for _ in range(stages)]
    drawn = set()
    for bar in bars:
        letter = _letter(bar.action)
        start = round((bar.start_s - first) / seconds * width)
        end = round((bar.end_s - first) / seconds * width)
        if letter == "." or end <= start:
            continue
        drawn.add(letter)
        label = _label(bar.action)
        text = label if len(label) <= end - start else letter
        fill = letter if letter == ">" else "-"
        rows[bar.stage][start:end] = text.ljust(end - start, fill)
    margin = len(f"stage {stages - 1}") + 2
    lines = [f"stage {stage}".ljust(margin) + "".join(row) for stage, row in enumerate(rows)]
    last = time_text(seconds)
    lines.append(" " * margin + "0" + last.rjust(width - 1))
    legend = [f"{letter} {name}" for letter, name in _NAMES.items() if letter in drawn or letter == "."]
    lines.append(" " * margin + "   ".join(legend))
    return "\n".join(lines) + "\n"


class Box(NamedTuple):
    """One action of the drawing: a rectangle with a label. The title appears when the mouse points at it."""

    x: float
    width: float
    colour: str
    label: str  # empty if the box has no room for it
    title: str


class StageRow(NamedTuple):
    """One stage of the drawing; `top` in pixels."""

    label: str
    top: float
    boxes: list[Box]


@dataclass(frozen=True)
class ScheduleChart:
    """A timeline drawn to scale; positions in pixels. `templates/schedule_chart.html` makes an SVG of it.

    The colours suit a light and a dark background.
    """

    WIDTH: ClassVar[int] = 960
    LEFT: ClassVar[int] = 64  # where the time axis begins
    TRACK: ClassVar[int] = 888  # length of the time axis
    ROW: ClassVar[int] = 22  # height of a stage

    headings: list[tuple[str, float]]  # text, top
    rows: list[StageRow]
    bottom: float  # where the time axis lies
    ticks: list[tuple[float, str]]  # x, text
    legend: list[tuple[float, str | None, str]]  # x, colour (None: an empty track), name


def schedule_chart(predicted: Sequence[TimedAction], measured: Sequence[TimedAction] = ()) -> ScheduleChart:
    """Lay out the predicted bars and, if given, the measured bars below them, on one scale of time.

    Both sets begin at 0 s. `measured` may hold the waits of `WAITS`, which stay empty. Raises ValueError if there is
    nothing to draw.
    """
    groups = [("predicted", predicted), *([("measured", measured)] if measured else [])]
    seconds = max(_extent(bars)[1] for _, bars in groups)
    scale = ScheduleChart.TRACK / seconds
    headings, rows = [], []
    top = 0.0
    for name, bars in groups:
        first = _extent(bars)[0]
        headings.append((name, top))
        top += 20
        for stage in range(1 + max(bar.stage for bar in bars)):
            own = [bar for bar in bars if bar.stage == stage and _letter(bar.action) != "."]
            rows.append(StageRow(f"stage {stage}", top, [_box(bar, first, scale) for bar in own]))
            top += ScheduleChart.ROW + 4
        top += 6
    drawn = {_letter(bar.action) for _, bars in groups for bar in bars}
    return ScheduleChart(headings, rows, top, _ticks(scale, seconds), _legend(drawn))


def time_text(seconds: float) -> str:
    """A duration in seconds with three digits and a unit: `12.3 ms`."""
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        text = f"{seconds / size:.3g}"
        if float(text) < 1000:
            return f"{text} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds:.3g} s"


def _extent(bars: Sequence[TimedAction]) -> tuple[float, float]:
    """When the first bar starts, and the seconds from there to the end of the last bar."""
    if not bars:
        raise ValueError("no action to draw")
    first = min(bar.start_s for bar in bars)
    seconds = max(bar.end_s for bar in bars) - first
    if seconds <= 0:
        raise ValueError("the actions to draw take no time")
    return first, seconds


def _letter(action: str) -> str:
    """The letter that stands for an action; messages are `>`, waits are `.`."""
    if action in WAITS:
        return "."
    kind = parse(action).kind
    return {"S": ">", "R": ">", "W": "."}.get(kind, kind)


def _label(action: str) -> str:
    letter = _letter(action)
    if letter not in KINDS:
        return letter
    parsed = parse(action)
    return f"{letter}{parsed.batch}.{parsed.part}" if parsed.part else f"{letter}{parsed.batch}"


def _box(bar: TimedAction, first_s: float, scale: float) -> Box:
    letter, label = _letter(bar.action), _label(bar.action)
    width = (bar.end_s - bar.start_s) * scale
    return Box(
        x=round(ScheduleChart.LEFT + (bar.start_s - first_s) * scale, 2),
        width=round(max(width - 0.5, 0.3), 2),
        colour=_COLOURS[letter],
        label=label if letter in KINDS and width >= 7 * len(label) + 2 else "",
        title=f"{bar.action}: {time_text(bar.end_s - bar.start_s)}",
    )


def _ticks(scale: float, seconds: float) -> list[tuple[float, str]]:
    """At most 8 ticks, at multiples of 1, 2 or 5 times a power of ten."""
    step = 10.0**-9
    while seconds / step > 8:
        step *= 2.5 if f"{step:e}"[0] == "2" else 2.0
    times = [tick * step for tick in range(int(seconds / step + 1e-9) + 1)]
    return [(round(ScheduleChart.LEFT + time * scale, 2), time_text(time) if time else "0") for time in times]


def _legend(drawn: set[str]) -> list[tuple[float, str | None, str]]:
    x = float(ScheduleChart.LEFT)
    entries = []
    for letter, name in _NAMES.items():
        if letter in drawn or letter == ".":
            entries.append((x, _COLOURS.get(letter), name))
            x += 34 + 7 * len(name)
    return entries
