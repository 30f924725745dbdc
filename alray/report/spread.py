"""The mean and the spread of a figure over repetitions, and how many of them have it.

Two values show no spread: by Student's t with one degree of freedom, the 90 % interval of their mean is 6.3 times as
wide as the distance between them. So tables, figures, comparisons and verdicts tell of a spread from three values on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean, stdev

LEAST_FOR_SPREAD = 3
"""The fewest values that show how far others may lie from them."""


@dataclass(frozen=True)
class Spread:
    """A figure over the runs of a group: its mean and its sample standard deviation (None for fewer than
    `LEAST_FOR_SPREAD` runs).

    Attributes:
        runs: how many have the figure.
        missing: how many others of the group do not.
    """

    mean: float
    deviation: float | None
    runs: int
    missing: int = 0


def spread(values: Iterable[float | None]) -> Spread | None:
    """The spread of the values that are known; None if none is."""
    each = list(values)
    known = [value for value in each if value is not None]
    if not known:
        return None
    finite = all(map(math.isfinite, known))
    deviation = None
    if len(known) >= LEAST_FOR_SPREAD:
        deviation = stdev(known) if finite else math.nan
    return Spread(fmean(known) if finite else sum(known), deviation, len(known), len(each) - len(known))


def shown(value: Spread | None, form: Callable[[float | None], str]) -> str:
    """The mean, with its deviation if there is one that can be seen: `mean ± deviation`. Where runs lack the figure
    also `(2 of 3)`."""
    if value is None:
        return form(None)
    text = form(value.mean)
    if value.deviation and (deviation := form(value.deviation)) != form(0.0):
        text += f" ± {deviation}"
    return f"{text} ({value.runs} of {value.runs + value.missing})" if value.missing else text


def ratio(over: Spread, under: Spread, factor: float = 1.0) -> Spread:
    """factor * over / under of two independent figures: the ratio of their means.

    The deviation is that of the first order: relative deviations add as squares. It is None where one of them is.
    """
    mean = factor * over.mean / under.mean
    deviation = None
    if over.deviation is not None and under.deviation is not None:
        deviation = abs(mean) * math.hypot(over.deviation / over.mean, under.deviation / under.mean)
    return Spread(mean, deviation, min(over.runs, under.runs), max(over.missing, under.missing))
