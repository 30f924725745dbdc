"""Where the true value of a figure of a study lies, given a few seeds or sessions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import ndtri, stdtr, stdtrit

from alray.report.spread import LEAST_FOR_SPREAD

LEVEL = 0.9
"""The share of intervals that contain the true value."""
_ROUNDING = 1e-9
_SURE = 1e-9
"""A share of no account."""


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


def _certain(known: float, value: float) -> float:
    """As `below` of a figure without spread. What is equal but for rounding, as of logarithms, lies on neither side."""
    return 0.5 if math.isclose(known, value, rel_tol=_ROUNDING, abs_tol=_ROUNDING) else float(known < value)


def of_mean(values: Sequence[float]) -> Student | None:
    """Where the mean over all seeds lies, by Student's t; None for fewer than `LEAST_FOR_SPREAD` values, and for values
    that are not finite."""
    if len(values) < LEAST_FOR_SPREAD or not all(map(math.isfinite, values)):
        return None
    return Student(fmean(values), stdev(values) / math.sqrt(len(values)), len(values) - 1)


def discoveries(p_values: Sequence[float]) -> list[bool]:
    """Which of several claims are decided, by the procedure of Benjamini & Hochberg (1995) at the rate 1 - `LEVEL`.

    Of claims about the direction from a bound, with two-sided p-values, half of that rate is the expected share that is
    decided in the wrong direction (Benjamini & Yekutieli 2005, JASA 100(469)): one in twenty.
    """
    ranked = sorted(p_values)
    allowed = [p for rank, p in enumerate(ranked, start=1) if p <= (1.0 - LEVEL) * rank / len(ranked)]
    return [bool(allowed) and p <= allowed[-1] for p in p_values]


def spread_out(values: Sequence[float], grain: float) -> list[float]:
    """Values that were rounded to multiples of `grain`, with those that are equal spread evenly over their cell. Values
    that rounding alone tells apart, as of logarithms, are equal.

    Steps to a target are known to one interval between evaluations. Ties would seem to leave no doubt.
    """
    found: list[float] = []
    for _, equal in groupby(sorted(values), key=lambda value: round(value / _ROUNDING)):
        alike = list(equal)
        found += [value + grain * ((number + 0.5) / len(alike) - 0.5) for number, value in enumerate(alike)]
    return found
