"""What the batch sizes of a series show together: the critical batch size, and how the best rate grows.

The critical batch size B_c is that of the curve S(B) = S_min (1 + B_c / B) through the steps to a target.
Up to about B_c samples, twice as many in a mini-batch halve the steps; far above it they save none (McCandlish et al.
2018, arXiv 1812.06162, section 2.3, whose curve of steps and samples is this one). A mini-batch of B_c samples takes
twice the fewest steps. Thresholds on neighbouring batch sizes ask for the smallest differences of a curve; this asks
for its bend, which all batch sizes show together. The best rate grows as a power of the batch size: 1 by the rule of
Goyal et al. 2017, and 1/2 by that of Krizhevsky 2014.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
class BatchSizeSeries:
    """A figure of every seed at each batch size.

    Attributes:
        sizes: the batch sizes.
        logs: the logarithms of the fewest steps to the target, or of the best rates, shape [seeds, batch sizes].
    """

    sizes: tuple[int, ...]
    logs: NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The curve of least squares through the logarithms of a figure.

    Attributes:
        shape: the logarithm of B_c, or the power by which a rate grows.
        height: the logarithm of S_min, or that of the rate for a batch size of 1.
        residuals: shape [batch sizes].
        information: the variance of one of the logarithms divided by this is the variance of `shape`.
    """

    shape: float
    height: float
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


def line(sizes: Sequence[int], logs: NDArray[np.float64]) -> Curve:
    """The power of the batch size through logarithms, shape [batch sizes]."""
    of_sizes = np.log(np.asarray(sizes, dtype=float))
    distances = of_sizes - of_sizes.mean()
    information = float((distances**2).sum())
    power = float((distances * logs).sum()) / information
    rest = logs - power * of_sizes
    return Curve(power, float(rest.mean()), rest - rest.mean(), information)


def critical_batch_size(of: BatchSizeSeries, over: BatchSizeSeries | None = None) -> Student | None:
    """Where the logarithm of B_c lies, or that of its ratio to the B_c of another series of the same seeds; None for
    fewer than `LEAST_FOR_SPREAD` seeds or batch sizes, and where a curve shows no bend."""
    return _shape(fitted, [of] if over is None else [of, over])


def growth(of: BatchSizeSeries) -> Student | None:
    """Where the power lies by which the best rate grows with the batch size; None for fewer than `LEAST_FOR_SPREAD`
    seeds or batch sizes."""
    return _shape(line, [of])


def _shape(
    fit: Callable[[Sequence[int], NDArray[np.float64]], Curve | None], series: Sequence[BatchSizeSeries]
) -> Student | None:
    """Where the shape of a curve lies, or its difference from that of a second series.

    What a seed does to all batch sizes alike changes the height alone. The scatter of the mean over the seeds about its
    curve is the search's, which tries other settings at each batch size, and what is left of chance. Where the curves
    of the seeds have shapes that differ by more than their own scatter explains, this is added.
    """
    seeds = len(series[0].logs)
    if seeds < LEAST_FOR_SPREAD or any(len(each.sizes) < LEAST_FOR_SPREAD for each in series):
        return None
    means = [fit(each.sizes, each.logs.mean(axis=0)) for each in series]
    each_seed = [[fit(each.sizes, logs) for logs in each.logs] for each in series]
    curves, of_seeds = _known(means), [_known(each) for each in each_seed]
    if curves is None or any(each is None for each in of_seeds):
        return None
    free = [len(each.sizes) - 2 for each in series]
    variances = [
        float((curve.residuals**2).sum()) / count / curve.information for curve, count in zip(curves, free, strict=True)
    ]
    shapes = np.asarray([[curve.shape for curve in each or ()] for each in of_seeds])
    differences = shapes[0] - sum(shapes[1:])
    explained = 0.0
    for curve, each, count in zip(curves, of_seeds, free, strict=True):
        residuals = np.asarray([one.residuals for one in each or ()])
        chance = float(((residuals - residuals.mean(axis=0)) ** 2).sum()) / ((seeds - 1) * count)
        explained += chance / seeds / curve.information
    excess = max(0.0, float(differences.var(ddof=1)) / seeds - explained)
    variance = sum(variances) + excess
    squares = sum(each**2 / count for each, count in zip(variances, free, strict=True)) + excess**2 / (seeds - 1)
    freedom = variance**2 / squares if squares > 0.0 else float(sum(free))  # of Satterthwaite
    middle = curves[0].shape - sum(curve.shape for curve in curves[1:])
    return Student(middle, math.sqrt(variance), freedom)


def _known(curves: Sequence[Curve | None]) -> list[Curve] | None:
    """The curves; None where one of them is not known."""
    known = [curve for curve in curves if curve is not None]
    return known if len(known) == len(curves) else None
