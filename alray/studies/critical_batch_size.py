"""The critical batch size B_c of a series of batch sizes: the steps to a target are S(B) = S_min (1 + B_c / B).

Up to about B_c samples, twice as many in a mini-batch halve the steps; far above it they save none (McCandlish et al.
2018, arXiv 1812.06162, section 2.3, whose curve of steps and samples is this one). A mini-batch of B_c samples takes
twice the fewest steps. Thresholds on neighbouring batch sizes ask for the smallest differences of a curve; this asks
for its bend, which all batch sizes show together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from alray.report.spread import LEAST_FOR_SPREAD
from alray.studies.confidence import Student

_BEYOND = 30.0
"""A critical batch size that lies further than this many times beyond the batch sizes that were tried is not known."""
_GRID = 200


@dataclass(frozen=True)
class Series:
    """The steps of a series of batch sizes.

    Attributes:
        sizes: the batch sizes.
        log_steps: the logarithms of the fewest steps to the target, shape [seeds, batch sizes].
    """

    sizes: tuple[int, ...]
    log_steps: NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The curve of least squares through logarithms of steps.

    Attributes:
        log_critical: the logarithm of B_c.
        log_fewest: that of S_min.
        residuals: shape [batch sizes].
        information: the variance of a step's logarithm divided by this is the variance of `log_critical`.
    """

    log_critical: float
    log_fewest: float
    residuals: NDArray[np.float64]
    information: float


def fitted(sizes: Sequence[int], log_steps: NDArray[np.float64]) -> Curve | None:
    """The curve through the logarithms of steps, shape [batch sizes]; None where they show no bend."""
    of_sizes = np.asarray(sizes, dtype=float)

    def bend(log_critical: float) -> NDArray[np.float64]:
        return np.log1p(math.exp(log_critical) / of_sizes)

    def scatter(log_critical: float) -> float:
        return float(np.var(log_steps - bend(log_critical)))

    grid = np.linspace(math.log(of_sizes.min() / _BEYOND), math.log(of_sizes.max() * _BEYOND), _GRID)
    nearest = int(np.argmin([scatter(each) for each in grid]))
    if nearest in (0, _GRID - 1):
        return None
    found = minimize_scalar(scatter, bounds=(grid[nearest - 1], grid[nearest + 1]), method="bounded")
    log_critical = float(found.x)
    rest = log_steps - bend(log_critical)
    slope = 1.0 / (1.0 + of_sizes / math.exp(log_critical))
    return Curve(log_critical, float(rest.mean()), rest - rest.mean(), float(((slope - slope.mean()) ** 2).sum()))


def critical_batch_size(of: Series, over: Series | None = None) -> Student | None:
    """Where the logarithm of B_c lies, or that of its ratio to the B_c of another series of the same seeds; None for
    fewer than `LEAST_FOR_SPREAD` seeds or batch sizes, and where a curve shows no bend.

    What a seed does to all batch sizes alike changes S_min alone. The scatter of the mean over the seeds about its
    curve is the search's, which tries other settings at each batch size, and what is left of chance. Where the curves
    of the seeds bend at points that differ by more than their own scatter explains, this is added.
    """
    series = [of] if over is None else [of, over]
    seeds = len(of.log_steps)
    if seeds < LEAST_FOR_SPREAD or any(len(each.sizes) < LEAST_FOR_SPREAD for each in series):
        return None
    means = [fitted(each.sizes, each.log_steps.mean(axis=0)) for each in series]
    each_seed = [[fitted(each.sizes, steps) for steps in each.log_steps] for each in series]
    curves, of_seeds = _known(means), [_known(each) for each in each_seed]
    if curves is None or any(each is None for each in of_seeds):
        return None
    free = [len(each.sizes) - 2 for each in series]
    variances = [
        float((curve.residuals**2).sum()) / count / curve.information for curve, count in zip(curves, free, strict=True)
    ]
    bends = np.asarray([[curve.log_critical for curve in each or ()] for each in of_seeds])
    ratios = bends[0] - bends[1] if over is not None else bends[0]
    explained = 0.0
    for curve, each, count in zip(curves, of_seeds, free, strict=True):
        residuals = np.asarray([one.residuals for one in each or ()])
        chance = float(((residuals - residuals.mean(axis=0)) ** 2).sum()) / ((seeds - 1) * count)
        explained += chance / seeds / curve.information
    excess = max(0.0, float(ratios.var(ddof=1)) / seeds - explained)
    variance = sum(variances) + excess
    squares = sum(each**2 / count for each, count in zip(variances, free, strict=True)) + excess**2 / (seeds - 1)
    freedom = variance**2 / squares if squares > 0.0 else float(sum(free))  # of Satterthwaite
    middle = curves[0].log_critical - (curves[1].log_critical if over is not None else 0.0)
    return Student(middle, math.sqrt(variance), freedom)


def _known(curves: Sequence[Curve | None]) -> list[Curve] | None:
    """The curves; None where one of them is not known."""
    known = [curve for curve in curves if curve is not None]
    return known if len(known) == len(curves) else None
