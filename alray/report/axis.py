"""Axes of a chart: which values get a tick, and where a value lies between two pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """Values `low`..`high` laid over pixels `start`..`end`, evenly or by powers of ten.

    Of the two pixels either may be the larger.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def pixel(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the axis, about five."""
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)


def axis_over(values: Sequence[float], start: float, end: float, *, log: bool = False) -> Axis:
    """An axis that holds all values, with a little room; values that are all but equal get more of it."""
    low, high = min(values), max(values)
    if log:
        return Axis(low / 1.15, high * 1.15, start, end, log=True)
    size = max(abs(low), abs(high), 1e-9)
    room = 0.04 * (high - low) if high - low > 1e-6 * size else 0.5 * size
    return Axis(low - room, high + room, start, end)


def spans_decades(values: Sequence[float]) -> bool:
    """Whether values are read better by powers of ten: above zero, the largest over 30 times the smallest."""
    return min(values) > 0 and max(values) > 30 * min(values)


def tick_label(value: float) -> str:
    """A tick's value, short: 1500 as 1,500, 0.00002 as 2e-05."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.0e}"
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


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
