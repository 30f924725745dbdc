"""Charts of a timeline, as plain text and as SVG: one row for each stage, time runs to the right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from alray.plan.timeline import TimedAction
from alray.report.lanes import DATA, DISTURBANCE, View, action_of, batch_of, category

_NAMES = {
    "d": "data",
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
    "d": "#7a6a2f",
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


def chart_text(view: View, *, width: int = 100) -> str:
    """The lanes as lines of plain text, with a scale and a legend below. The time axis is `width` characters long.

    A bar shows its letter, then dashes up to its end. If there is room, the mini-batch follows the letter, and `.` and
    the micro-batch unless that is 0. Bars shorter than half a character are left out. A row is empty where it is not
    known what the stage did, as after the last mini-batch. Raises ValueError if there is nothing to draw.
    """
    scale = width / _seconds(view)
    margin = len(f"stage {view.lanes[-1].stage}") + 2
    lines, drawn = [], {"."}
    for lane in view.lanes:
        row = [" "] * width
        for start, end in view.traced(lane):
            first, last = round(start * scale), round(end * scale)
            row[first:last] = "." * (last - first)
        for bar in view.inside(lane):
            first, last = (round(seconds * scale) for seconds in view.clipped(bar))
            if last > first:
                letter, label = _letter(bar), _label(bar)
                drawn.add(letter)
                text = label if len(label) <= last - first else letter
                row[first:last] = text.ljust(last - first, letter if letter == ">" else "-")
        lines.append((f"stage {lane.stage}".ljust(margin) + "".join(row)).rstrip())
    lines.append(" " * margin + "0" + time_text(view.end_s - view.start_s).rjust(width - 1))
    lines.append(" " * margin + "   ".join(f"{letter} {name}" for letter, name in _NAMES.items() if letter in drawn))
    return "\n".join(lines) + "\n"


class Box(NamedTuple):
    """One action of the drawing: a rectangle with a label. The title appears when the mouse points at it."""

    x: float
    width: float
    colour: str
    label: str  # empty if the box has no room for it
    title: str


class StageRow(NamedTuple):
    """One stage of the drawing, in pixels. Its tracks show from where to where it is known what the stage did."""

    label: str
    top: float
    tracks: list[tuple[float, float]]  # x, width
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


def schedule_chart(predicted: View, measured: View | None = None) -> ScheduleChart:
    """Lay out the predicted lanes and, if given, the measured lanes below them, on one scale of time.

    Raises ValueError if there is nothing to draw.
    """
    groups = [("predicted", predicted), *([("measured", measured)] if measured else [])]
    seconds = max(_seconds(view) for _, view in groups)
    scale = ScheduleChart.TRACK / seconds
    headings, rows = [], []
    drawn = {"."}
    top = 0.0
    for name, view in groups:
        headings.append((name, top))
        top += 20
        for lane in view.lanes:
            bars = list(view.inside(lane))
            drawn |= {_letter(bar) for bar in bars}
            tracks = [
                (round(ScheduleChart.LEFT + start * scale, 2), round((end - start) * scale, 2))
                for start, end in view.traced(lane)
            ]
            rows.append(StageRow(f"stage {lane.stage}", top, tracks, [_box(bar, view, scale) for bar in bars]))
            top += ScheduleChart.ROW + 4
        top += 6
    return ScheduleChart(headings, rows, top, _ticks(scale, seconds), _legend(drawn))


def time_text(seconds: float) -> str:
    """A duration in seconds with three digits and a unit: `12.3 ms`."""
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        text = f"{seconds / size:.3g}"
        if float(text) < 1000:
            return f"{text} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds:.3g} s"


def _seconds(view: View) -> float:
    if not any(lane.bars for lane in view.lanes):
        raise ValueError("no action to draw")
    if view.end_s <= view.start_s:
        raise ValueError("the actions to draw take no time")
    return view.end_s - view.start_s


def _letter(bar: TimedAction) -> str:
    """The letter that stands for a bar; messages between stages or replicas are `>`."""
    action = action_of(bar)
    if action is None:
        return {DATA: "d", DISTURBANCE: "B"}.get(category(bar), ">")
    return {"S": ">", "R": ">"}.get(action.kind, action.kind)


def _label(bar: TimedAction) -> str:
    letter, action = _letter(bar), action_of(bar)
    batch = batch_of(bar) if action is None else action.batch
    if letter == ">" or batch is None:
        return letter
    return f"{letter}{batch}.{action.part}" if action is not None and action.part else f"{letter}{batch}"


def _box(bar: TimedAction, view: View, scale: float) -> Box:
    letter, label = _letter(bar), _label(bar)
    start, end = view.clipped(bar)
    width = (end - start) * scale
    return Box(
        x=round(ScheduleChart.LEFT + start * scale, 2),
        width=round(max(width - 0.5, 0.3), 2),
        colour=_COLOURS[letter],
        label=label if letter != ">" and width >= 7 * len(label) + 2 else "",
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
        if letter in drawn:
            entries.append((x, _COLOURS.get(letter), name))
            x += 34 + 7 * len(name)
    return entries
