"""What repeats tell: a mean and the interval it lies in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtrit


class Interval(NamedTuple):
    """A mean with the ends of its 95 % interval."""

    low: float
    mean: float
    high: float


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of the mean of independent repeats; two or more of them."""
    mean = fmean(values)
    half = float(stdtrit(len(values) - 1, 0.975)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean - half, mean, mean + half)
