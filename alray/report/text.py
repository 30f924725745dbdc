"""Numbers and tables as HTML text: seconds, bytes, shares, and a dash for what was not measured."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

NOT_MEASURED = "–"


class Markup(str):
    """Text that is HTML already; every other text is escaped."""


def cell(value: str | Markup) -> Markup:
    """A text made safe to stand in the page."""
    return value if isinstance(value, Markup) else Markup(escape(value))


def seconds(value: float | None) -> str:
    """A duration in the unit that suits it: 41.2 ms, 3.05 s, 12 min 7 s."""
    if value is None:
        return NOT_MEASURED
    if value == 0:
        return "0 s"
    if value >= 7200:
        return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"
    if value >= 120:
        return f"{int(value // 60)} min {int(value % 60)} s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1 or unit == "µs":
            break
    return f"{digits(value * factor)} {unit}"


def milliseconds(value: float | None) -> str:
    """A duration as a bare number of milliseconds, for a column that names the unit."""
    return NOT_MEASURED if value is None else digits(value * 1e3)


def size(value: float | None) -> str:
    """Bytes in the decimal unit that suits them: 820 B, 1.24 MB."""
    if value is None:
        return NOT_MEASURED
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{digits(value)} {unit}"
        value /= 1000
    return f"{digits(value)} TB"


def share(value: float | None) -> str:
    """A share of 1 as per cent, with one decimal: 97.5 %."""
    return NOT_MEASURED if value is None else f"{value * 100:.1f} %"


def accuracy(value: float | None) -> str:
    """An accuracy as a share of 1 with four decimals, as `summary.json` holds it."""
    return NOT_MEASURED if value is None else f"{value:.4f}"


def count(value: float | None) -> str:
    """A number of things; three significant digits where it is no whole number."""
    if value is None:
        return NOT_MEASURED
    return f"{value:,.0f}" if value == round(value) or value >= 1000 else digits(value)


def digits(value: float) -> str:
    """Three digits for numbers above 1, two decimals below; never as a power of ten."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str | Markup]], *, long: Sequence[int] = ()) -> Markup:
    """A table. `long` are the columns (from 0) whose text may be long: they wrap, set to the left."""
    kinds = [' class="long"' if column in long else "" for column in range(len(head))]
    heading = "".join(f"<th{kind}>{cell(name)}</th>" for kind, name in zip(kinds, head, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell(value)}</td>" for kind, value in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return Markup(f'<div class="wide"><table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table></div>')


def meter(value: float) -> Markup:
    """A small bar that shows a share of 1."""
    return Markup(
        '<svg class="meter" viewBox="0 0 130 10" aria-hidden="true"><rect class="fill track" width="130" '
        f'height="10"/><rect class="fill accuracy" width="{130 * value:.1f}" height="10"/></svg>'
    )
