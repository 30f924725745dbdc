"""Where the true value of a figure of a study lies, given a few seeds or sessions, and a few trials of a search.

The best of n trials is not the best that there is. More trials come closer to it, so points that were searched by few
trials look worse than they are. `of_best` says where the true best lies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtri, stdtr, stdtrit

from alray.report.spread import LEAST_FOR_SPREAD

LEVEL = 0.9
"""The share of intervals that contain the true value."""
TAIL = 0.25
"""The share of the trials of a search that count as close to its best."""
MOST_IN_TAIL = 12
"""No more trials count: further from the best, settings no longer lie in the same bowl."""
_LEAST_IN_TAIL = 3
_ROUNDING = 1e-9
_SURE = 1e-9
"""A share of no account."""
_QUANTILES = (np.arange(1_000) + 0.5) / 1_000
_NODES = np.linspace(0.0, 1.0, 801)[1:]
_DISTANCES = 256


class Interval(NamedTuple):
    """The ends of an interval that contains the true value with the probability `LEVEL`."""

    low: float
    high: float


class Confidence(ABC):
    """A confidence distribution: over repeated studies, a true value lies below its quantile of p with chance p."""

    @abstractmethod
    def at(self, share: float) -> float:
        """The quantile of a share in 0..1."""

    @abstractmethod
    def below(self, value: float) -> float:
        """How sure it is that the true value is less than this one: the p-value of the claim that it is larger. Without
        any doubt 0 or 1, and one half if it is this value."""

    @property
    def middle(self) -> float:
        """The median."""
        return self.at(0.5)

    @property
    def interval(self) -> Interval:
        return Interval(self.at((1.0 - LEVEL) / 2.0), self.at((1.0 + LEVEL) / 2.0))


@dataclass(frozen=True)
class Student(Confidence):
    """A mean or an estimate whose distance from the truth, divided by its standard error, has Student's t distribution.

    Attributes:
        freedom: the degrees of freedom of the standard error.
    """

    mean: float
    error: float
    freedom: float

    def at(self, share: float) -> float:
        return self.mean + self.error * float(stdtrit(self.freedom, share))

    def below(self, value: float) -> float:
        if self.error == 0.0:
            return _certain(self.mean, value)
        return float(stdtr(self.freedom, (value - self.mean) / self.error))


@dataclass(frozen=True)
class Sampled(Confidence):
    """A mean whose values share a further error, normal and of known variance, as that of the samples which they are
    measured on.

    The two errors are independent. Half the width of an interval is sqrt(a^2 + b^2), where a and b are those of either
    error alone (Howe 1974, JASA 69(347)). It is exact where one of them is 0. Between, with three seeds, up to 94 of
    100 intervals of 90 % contain the truth. Student's t with the degrees of freedom of Satterthwaite is no substitute:
    with three seeds they grow faster than the error does, and an error that is added makes intervals narrower.
    """

    of_seeds: Student
    variance: float

    @property
    def mean(self) -> float:
        return self.of_seeds.mean

    def at(self, share: float) -> float:
        by_seeds, by_samples = self.of_seeds.at(share) - self.mean, math.sqrt(self.variance) * float(ndtri(share))
        return self.mean + math.copysign(math.hypot(by_seeds, by_samples), share - 0.5)

    def below(self, value: float) -> float:
        if self.at(_SURE) == self.at(1.0 - _SURE):
            return _certain(self.mean, value)
        if not self.at(_SURE) < value < self.at(1.0 - _SURE):
            return float(value > self.mean)
        from scipy.optimize import brentq  # takes longer to import than all else of a report

        return float(brentq(lambda share: self.at(share) - value, _SURE, 1.0 - _SURE))


@dataclass(frozen=True)
class Quantiles(Confidence):
    """A distribution by its quantiles of 0.0005, 0.0015 to 0.9995, in ascending order."""

    values: tuple[float, ...]

    def at(self, share: float) -> float:
        return float(np.interp(share, _QUANTILES, self._array))

    def below(self, value: float) -> float:
        if self.values[0] == self.values[-1]:
            return _certain(self.values[0], value)
        return float(np.interp(value, self._array, _QUANTILES))

    @cached_property
    def _array(self) -> NDArray[np.float64]:
        return np.asarray(self.values)


def _certain(known: float, value: float) -> float:
    """As `below` of a figure without spread. What is equal but for rounding, as of logarithms, lies on neither side."""
    return 0.5 if math.isclose(known, value, rel_tol=_ROUNDING, abs_tol=_ROUNDING) else float(known < value)


def of_mean(values: Sequence[float]) -> Student | None:
    """Where the mean over all seeds lies, by Student's t; None for fewer than `LEAST_FOR_SPREAD` values, and for values
    that are not finite."""
    if len(values) < LEAST_FOR_SPREAD or not all(map(math.isfinite, values)):
        return None
    return Student(fmean(values), stdev(values) / math.sqrt(len(values)), len(values) - 1)


def difference(left: Confidence, right: Confidence) -> Quantiles:
    """Where the difference of two true values lies whose estimates are independent, by its distribution function."""
    of_left, of_right = (np.asarray([each.at(share) for share in _QUANTILES]) for each in (left, right))
    return Quantiles(tuple(np.quantile(np.subtract.outer(of_left, of_right), _QUANTILES).tolist()))


def discoveries(p_values: Sequence[float]) -> list[bool]:
    """Which of several claims are decided, by the procedure of Benjamini & Hochberg (1995) at the rate 1 - `LEVEL`.

    Of claims about the direction from a bound, with two-sided p-values, half of that rate is the expected share that is
    decided in the wrong direction (Benjamini & Yekutieli 2005, JASA 100(469)): one in twenty.
    """
    ranked = sorted(p_values)
    allowed = [p for rank, p in enumerate(ranked, start=1) if p <= (1.0 - LEVEL) * rank / len(ranked)]
    return [bool(allowed) and p <= allowed[-1] for p in p_values]


def of_best(values: Sequence[float], *, dimensions: int, noise: float = 0.0, trials: int | None = None) -> Quantiles:
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
        return Quantiles((float(near[0]),) * len(_QUANTILES))
    # Candidates of y0, from above: without noise it lies below all values.
    highest = near[0] + 8.0 * noise
    candidates = highest - np.concatenate(([0.0], np.geomspace(1e-9 * width, 1e6 * width, _DISTANCES)))
    sums = np.asarray([_sum_of_logs(near - each, dimensions / 2.0, noise) for each in candidates])
    wanted = gammaincinv(tail, _QUANTILES)
    order = np.argsort(sums)
    return Quantiles(tuple(np.interp(wanted, sums[order], candidates[order]).tolist()))


def spread_out(values: Sequence[float], grain: float) -> list[float]:
    """Values that were rounded to multiples of `grain`, with those that are equal spread evenly over their cell. Values
    that rounding alone tells apart, as of logarithms, are equal.

    Steps to a target are known to one interval between evaluations. Ties would seem to show a best beyond doubt.
    """
    found: list[float] = []
    for _, equal in groupby(sorted(values), key=lambda value: round(value / _ROUNDING)):
        alike = list(equal)
        found += [value + grain * ((number + 0.5) / len(alike) - 0.5) for number, value in enumerate(alike)]
    return found


def seed_effects(values: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """What chance does to the settings of a search: the standard deviation of a setting's mean over the seeds, and how
    far each seed lies from the mean, for all settings alike.

    Values are the sum of one for the setting, one for the seed, and the rest. A seed's own share moves all settings
    together, so it says nothing of which of them is the best.

    Args:
        values: shape [settings, seeds], at least two of each.
    """
    of_settings, of_seeds = values.mean(axis=1, keepdims=True), values.mean(axis=0, keepdims=True)
    rest = values - of_settings - of_seeds + values.mean()
    settings, seeds = values.shape
    variance = float((rest**2).sum()) / ((settings - 1) * (seeds - 1))
    return math.sqrt(variance / seeds), of_seeds[0] - values.mean()


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
