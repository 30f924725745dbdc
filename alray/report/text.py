"""Numbers as text: durations, bytes, shares. A value that was not measured (None) is shown as a dash."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

NOT_MEASURED = "–"


def seconds(value: float | None) -> str:
    """A duration in seconds, shown in the unit that suits it: 41.2 ms, 3.05 s, 12 min 7 s."""
    if value is None:
        return NOT_MEASURED
    if not math.isfinite(value):  # a damaged file may have it
        return str(value)
    if value == 0:
        return "0 s"
    if value >= 7200:
        return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"
    if value >= 120:
        return f"{int(value // 60)} min {int(value % 60)} s"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1 or unit == "µs":
            break
    return f"{_digits(value * factor)} {unit}"


def seconds_range(value: tuple[float, float] | None) -> str:
    """The least and the most that a duration may be: 86.6 ms to 161 ms."""
    return NOT_MEASURED if value is None else f"{seconds(value[0])} to {seconds(value[1])}"


def milliseconds(value: float | None) -> str:
    """A duration in seconds as a bare number of milliseconds, for a column whose heading names the unit."""
    return NOT_MEASURED if value is None else _digits(value * 1e3)


def size(value: float | None) -> str:
    """Bytes in the decimal unit that suits them: 820 B, 1.24 MB."""
    if value is None:
        return NOT_MEASURED
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{_digits(value)} {unit}"
        value /= 1000
    return f"{_digits(value)} TB"


def share(value: float | None) -> str:
    """A share in 0..1 as a percentage with one decimal: 97.5 %."""
    return NOT_MEASURED if value is None else f"{value * 100:.1f} %"


def score(value: float | None) -> str:
    """A value of a task's metric, such as an accuracy, with four decimals: 0.9750, or as few digits as a large or tiny
    one needs: 2,859.7, 2.31e-06."""
    if value is None:
        return NOT_MEASURED
    if abs(value) >= 1000:
        return f"{value:,.1f}"
    return f"{value:.3g}" if 0 < abs(value) < 0.00005 else f"{value:.4f}"


def number(value: float | None) -> str:
    """A count or a rate: whole from 1,000 on, otherwise three digits: 12,800, 42, 3.14."""
    if value is None:
        return NOT_MEASURED
    return f"{value:,.0f}" if float(value).is_integer() or value >= 1000 else _digits(value)


def whole(value: float | None) -> str:
    """A number without decimals: 12,800."""
    return NOT_MEASURED if value is None else f"{value:,.0f}"


def _digits(value: float) -> str:
    """Three digits from 1 on, two decimals below 1; never as a power of ten."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def left_out(refused: Iterable[tuple[str, str, str]], words: str) -> list[str]:
    """Sentences on what cannot run. Reasons that differ in a number are told once.

    Args:
        refused: what, where, and why.
        words: with what and where, such as "{} on {} stages"; several places stand together.
    """
    reasons, alike = dict[str, str](), dict[str, dict[str, list[str]]]()
    for what, where, why in refused:
        kind = re.sub(r"\d+", "", why)
        reasons.setdefault(kind, why)
        alike.setdefault(kind, {}).setdefault(what, []).append(where)

    def told(kind: str) -> str:
        return "; ".join(words.format(what, ", ".join(places)) for what, places in alike[kind].items())

    return [f"left out: {told(kind)}, because {why}" for kind, why in reasons.items()]
