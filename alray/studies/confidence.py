"""The doubt about a figure of a study: where its true value lies, given a few seeds and a few trials of a search.

The best of n trials is not the best that there is. More trials come closer to it, so points that were searched by few
trials look worse than they are. `of_best` says where the true best lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import gamma, t

from alray.report.spread import LEAST_FOR_SPREAD

LEVEL = 0.9
"""The share of intervals that contain the true value."""
TAIL = 0.25
"""The share of the trials of a search that count as close to its best."""
MOST_IN_TAIL = 12
"""No more trials count: further from the best, settings no longer lie in the same bowl."""
_LEAST_IN_TAIL = 3
_QUANTILES = np.linspace(0.0005, 0.9995, 999)
_NODES = np.linspace(0.0, 1.0, 801)[1:]
_DISTANCES = 256


class Interval(NamedTuple):
    """The ends of an interval that contains the true value with the probability `LEVEL`."""

    low: float
    high: float


@dataclass(frozen=True)
class Confidence:
    """A confidence distribution: a true value lies below its quantile of p with probability p, over repeated studies.

    Attributes:
        quantiles: of `_QUANTILES`, in ascending order. Without any doubt all are equal.
    """

    quantiles: tuple[float, ...]

    @property
    def middle(self) -> float:
        """The median."""
        return self._at(0.5)

    @property
    def interval(self) -> Interval:
        return Interval(self._at((1.0 - LEVEL) / 2.0), self._at((1.0 + LEVEL) / 2.0))

    def draws(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Values that are distributed as this says, shape [count]."""
        return np.interp(generator.random(count), _QUANTILES, self._values)

    def _at(self, share: float) -> float:
        return float(np.interp(share, _QUANTILES, self._values))

    @cached_property
    def _values(self) -> NDArray[np.float64]:
        return np.asarray(self.quantiles)


def of_mean(values: Sequence[float]) -> Confidence | None:
    """Where the mean over all seeds lies, by Student's t; None for fewer than `LEAST_FOR_SPREAD` values."""
    if len(values) < LEAST_FOR_SPREAD:
        return None
    error = stdev(values) / len(values) ** 0.5
    return Confidence(tuple((fmean(values) + error * t.ppf(_QUANTILES, len(values) - 1)).tolist()))


def of_best(values: Sequence[float], *, dimensions: int, noise: float = 0.0, trials: int | None = None) -> Confidence:
    """Where the smallest value lies that any settings of a random search have, given the values of those that were
    tried.

    Close to the best settings the value grows with the square of the distance. So of settings drawn at random, the
    share with a value below y grows as (y - y0)^k with k = dimensions / 2, where y0 is that of the best ones. Given the
    m + 1 smallest values x_1..x_(m+1), the shares u_i = ((x_i - y0) / (x_(m+1) - y0))^k of the others are independent
    and uniform at the true y0. So -sum(log u_i) has the gamma distribution of shape m, whose quantiles give those of y0
    (de Haan 1981, JASA 76(374), who gives this for m = 1). Values with noise are sums of such a value and a normal
    one: there (x - y0)^k is replaced by the mean of max(0, x - y0 + e)^k over the noise e.

    Args:
        values: one for each setting that has one, as a mean over its seeds, on a scale on which the noise is alike
            everywhere, such as the logarithm of steps.
        dimensions: the numbers that were searched, at least 1.
        noise: the standard deviation of a value.
        trials: how many settings were tried, also those without a value, which count as larger than all others; by
            default as many as there are values.

    Raises:
        ValueError: for fewer than two values.
    """
    if len(values) < 2:
        raise ValueError("the best of a search needs two values")
    smallest = np.sort(np.asarray(values, dtype=float))
    tail = min(max(_LEAST_IN_TAIL, round(TAIL * (trials or len(values)))), MOST_IN_TAIL, len(values) - 1)
    near = smallest[: tail + 1]
    width = near[-1] - near[0]
    if width <= 0.0:
        return Confidence((float(near[0]),) * len(_QUANTILES))
    # Candidates of y0, from above: without noise it lies below all values.
    highest = near[0] + 8.0 * noise
    candidates = highest - np.concatenate(([0.0], np.geomspace(1e-9 * width, 1e6 * width, _DISTANCES)))
    sums = np.asarray([_sum_of_logs(near - each, dimensions / 2.0, noise) for each in candidates])
    wanted = gamma.ppf(_QUANTILES, tail)
    order = np.argsort(sums)
    return Confidence(tuple(np.interp(wanted, sums[order], candidates[order]).tolist()))


def spread_out(values: Sequence[float], grain: float) -> list[float]:
    """Values that were rounded to multiples of `grain`, with those that are equal spread evenly over their cell.

    Steps to a target are known to one interval between evaluations. Ties would seem to show a best beyond doubt.
    """
    found: list[float] = []
    for value, equal in groupby(sorted(values)):
        count = len(list(equal))
        found += [value + grain * ((number + 0.5) / count - 0.5) for number in range(count)]
    return found


def noise_of_means(settings: Sequence[Sequence[float]]) -> float | None:
    """The standard deviation of the mean over seeds, pooled over settings; None if none has two seeds.

    Args:
        settings: the values of each setting, one for each seed.
    """
    several = [each for each in settings if len(each) > 1]
    if not several:
        return None
    squares = sum((len(each) - 1) * stdev(each) ** 2 for each in several)
    variance = squares / sum(len(each) - 1 for each in several)
    return float((variance / fmean(len(each) for each in settings)) ** 0.5)


def _sum_of_logs(distances: NDArray[np.float64], exponent: float, noise: float) -> float:
    """-sum(log u_i) over all distances but the last, which is the largest."""
    if noise > 1e-6 * (distances[-1] - distances[0]):
        logs = _log_mean_power(distances / noise, exponent)
    else:
        logs = exponent * np.log(np.maximum(distances, np.finfo(float).tiny))
    return float(np.sum(logs[-1] - logs[:-1]))


def _log_mean_power(distances: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """log of the mean of max(0, distance + e)^exponent over standard normal e, up to a constant."""
    result = exponent * np.log(np.maximum(distances, 1.0))
    near = distances[distances < 30.0]
    furthest = np.maximum(near, 0.0) + 9.0
    values = furthest[:, None] * _NODES**2  # closer together near 0, where a small power is steep
    widths = furthest[:, None] * 2.0 * _NODES * _NODES[0]
    logs = exponent * np.log(values) - 0.5 * (values - near[:, None]) ** 2 + np.log(widths)
    largest = logs.max(axis=1)
    summed = np.log(np.exp(logs - largest[:, None]).sum(axis=1))
    result[distances < 30.0] = largest + summed - 0.5 * np.log(2.0 * np.pi)
    return result
