"""The chart of a timeline as plain text: one row for each stage, time runs to the right."""

from __future__ import annotations

from typing import NamedTuple

from alray.planning.prediction.timeline import TimedAction
from alray.report.lanes import DATA, DISTURBANCE, View, action_of, batch_of, category
from alray.report.text import seconds

NAMES = {
    "d": "data",
    "F": "forward",
    "C": "forward again",
    "L": "labels and losses",
    "B": "backward",
    "I": "input gradient",
    "G": "weight gradient",
    "U": "update",
    "E": "inference up",
    "D": "inference down",
    "W": "barrier",
    "X": "slowed on purpose",
    ">": "message",
    ".": "waiting",
}


class Chart(NamedTuple):
    """Lines of plain text: one for each stage, then the scale.

    Attributes:
        margin: characters of a line before the time axis.
        legend: what each letter that was drawn means.
    """

    lines: list[str]
    margin: int
    legend: list[str]


def chart_of(view: View, *, width: int = 100) -> Chart:
    """The lanes as plain text. The time axis is `width` characters long.

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
            first, last = (round(at_s * scale) for at_s in view.clipped(bar))
            if last > first:
                sign, text = letter(bar), label(bar)
                drawn.add(sign)
                text = text if len(text) <= last - first else sign
                row[first:last] = text.ljust(last - first, sign if sign == ">" else "-")
        lines.append((f"stage {lane.stage}".ljust(margin) + "".join(row)).rstrip())
    lines.append(" " * margin + "0" + seconds(view.end_s - view.start_s).rjust(width - 1))
    return Chart(lines, margin, [f"{sign} {name}" for sign, name in NAMES.items() if sign in drawn])


def _seconds(view: View) -> float:
    if not any(lane.bars for lane in view.lanes):
        raise ValueError("no action to draw")
    if view.end_s <= view.start_s:
        raise ValueError("the actions to draw take no time")
    return view.end_s - view.start_s


def letter(bar: TimedAction) -> str:
    """The letter that stands for a bar; messages between stages or replicas are `>`."""
    action = action_of(bar)
    if action is None:
        return {DATA: "d", DISTURBANCE: "X"}.get(category(bar), ">")
    return {"S": ">", "R": ">"}.get(action.kind, action.kind)


def label(bar: TimedAction) -> str:
    """The text in a bar: its letter and mini-batch, and the micro-batch unless that is 0."""
    sign, action = letter(bar), action_of(bar)
    batch = batch_of(bar) if action is None else action.batch
    if sign == ">" or batch is None:
        return sign
    return f"{sign}{batch}.{action.number}" if action is not None and action.number else f"{sign}{batch}"
