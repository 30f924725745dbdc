"""Charts of a timeline: stages downwards, time to the right, as plain text and as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from alray.plan.timeline import TimedAction
from alray.schedules.actions import KINDS, parse

WAITS = ("send_wait", "receive_wait", "idle")  # what a measured timeline holds besides actions

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
_INK = "#767676"  # readable on white and on black
_TRACK = "#808080"
_TRACK_OPACITY = 0.16


def chart_text(bars: Sequence[TimedAction], *, width: int = 100) -> str:
    """The bars as lines of plain text, `width` characters of time, with a scale and a legend below.

    A bar shows its letter, its mini-batch (with `.` and the micro-batch, unless that is 0) where there is room, and
    dashes up to its end; bars shorter than half a character are left out. Raises ValueError where there is nothing to
    draw.
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


def chart_svg(predicted: Sequence[TimedAction], measured: Sequence[TimedAction] = (), *, width: int = 960) -> str:
    """One SVG: the predicted bars and, where given, the measured ones below them on the same scale of time.

    Either set begins at 0 s. `measured` may hold the waits of `WAITS`; they are drawn as the empty track. The
    colours are neutral: the chart can stand on a light or a dark page. Raises ValueError where `predicted` is
    empty.
    """
    groups = [("predicted", predicted), *([("measured", measured)] if measured else [])]
    seconds = max(_extent(bars)[1] for _, bars in groups)
    left, row, gap = 64, 22, 4
    scale = (width - left - 8) / seconds
    parts: list[str] = []
    drawn: set[str] = set()
    top = 0.0
    for name, bars in groups:
        first = _extent(bars)[0]
        parts.append(_text(0, top + 14, name, weight="bold"))
        top += 20
        for stage in range(1 + max(bar.stage for bar in bars)):
            parts.append(_text(0, top + 15, f"stage {stage}"))
            parts.append(
                f'<rect x="{left}" y="{top:g}" width="{width - left - 8}" height="{row}" fill="{_TRACK}" '
                f'fill-opacity="{_TRACK_OPACITY}"/>'
            )
            for bar in bars:
                if bar.stage == stage and _letter(bar.action) != ".":
                    drawn.add(_letter(bar.action))
                    parts.append(_svg_bar(bar, left + (bar.start_s - first) * scale, top, scale, row))
            top += row + gap
        top += 6
    parts += _svg_axis(left, top, scale, seconds)
    top += 26
    parts += _svg_legend(left, top, drawn)
    height = top + 20
    described = " and ".join(name for name, _ in groups)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" '
        f'height="{height:g}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="Schedule as {described}" font-family="system-ui, sans-serif" font-size="12">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def time_text(seconds: float) -> str:
    """Three figures with a unit: `12.3 ms`."""
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        text = f"{seconds / size:.3g}"
        if float(text) < 1000:
            return f"{text} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1000 else f"{seconds:.3g} s"


def _extent(bars: Sequence[TimedAction]) -> tuple[float, float]:
    """The first start, and the seconds from there to the last end."""
    if not bars:
        raise ValueError("no action to draw")
    first = min(bar.start_s for bar in bars)
    seconds = max(bar.end_s for bar in bars) - first
    if seconds <= 0:
        raise ValueError("the actions to draw take no time")
    return first, seconds


def _letter(action: str) -> str:
    """The letter an action is drawn with; messages are `>`, waits `.`."""
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


def _svg_bar(bar: TimedAction, x: float, top: float, scale: float, height: int) -> str:
    width = (bar.end_s - bar.start_s) * scale
    label = _label(bar.action)
    told = f"{bar.action}: {time_text(bar.end_s - bar.start_s)}"
    shape = (
        f'<rect x="{x:.2f}" y="{top:g}" width="{max(width - 0.5, 0.3):.2f}" height="{height}" rx="2" '
        f'fill="{_COLOURS[_letter(bar.action)]}"><title>{escape(told)}</title></rect>'
    )
    if label[0] not in KINDS or width < 7 * len(label) + 2:
        return shape
    return (
        shape + f'<text x="{x + width / 2:.2f}" y="{top + height / 2 + 4:g}" text-anchor="middle" fill="#fff" '
        f'font-size="11" pointer-events="none">{escape(label)}</text>'
    )


def _svg_axis(left: float, top: float, scale: float, seconds: float) -> list[str]:
    """A tick at every 1, 2 or 5 times a power of ten that gives at most 8 of them."""
    step = 10.0**-9
    while seconds / step > 8:
        step *= 2.5 if f"{step:e}"[0] == "2" else 2.0
    parts = []
    for tick in range(int(seconds / step + 1e-9) + 1):
        x = left + tick * step * scale
        parts.append(f'<path d="M{x:.2f} {top - 6:g}v5" stroke="{_INK}"/>')
        parts.append(_text(x, top + 11, time_text(tick * step) if tick else "0", anchor="middle"))
    return parts


def _svg_legend(left: float, top: float, drawn: set[str]) -> list[str]:
    parts = []
    x = left
    for letter, name in _NAMES.items():
        if letter not in drawn and letter != ".":
            continue
        colour, opacity = (_TRACK, 2 * _TRACK_OPACITY) if letter == "." else (_COLOURS[letter], 1.0)
        parts.append(
            f'<rect x="{x}" y="{top:g}" width="12" height="12" rx="2" fill="{colour}" fill-opacity="{opacity:g}"/>'
        )
        parts.append(_text(x + 17, top + 10.5, name))
        x += 34 + 7 * len(name)
    return parts


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.2f}" y="{y:g}" fill="{_INK}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
    )
