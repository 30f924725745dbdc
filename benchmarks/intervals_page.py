"""The table of docs/studies.md: how often intervals contain the truth. And how well the curve of batch sizes fits the
reference runs of MLPerf."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from alray.studies.confidence import Interval, Student
from alray.studies.series import fitted
from benchmarks.filled import with_rows

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "studies.md"
MLPERF = DOCS / "published_runs" / "mlperf_batch_sizes.csv"
_SLIPS = {("cosmoflow", 32), ("gpt3", 3072)}
"""Another setting than at the other batch sizes; one run that is ten times the others. The file says so."""
_LEAST = 4
"""Batch sizes of a curve: two are its numbers, and the others show whether it fits."""
_KINDS = {
    "paired_seeds": "ratio of steps, three seeds that two variants share",
    "five_paired_seeds": "the same, five seeds",
    "days": "ratio of times, five days of two turns",
    "one_day": "ratio of times, one day of three turns: how many contain the mean over all days",
    "noisy_quadratic": "ratio of two critical batch sizes, trained, 12 rates at each of seven batch sizes, three seeds",
    "one_critical_batch_size": "one critical batch size, the same",
}


class Fit(NamedTuple):
    """The curve of one benchmark of MLPerf.

    Attributes:
        scatter: the root of the mean square of the residuals of the logarithm of steps.
        left_out: the median error of a batch size that the curve through the others predicts, as a share.
        constant: the same, if the samples to the target did not depend on the batch size.
    """

    sizes: tuple[int, ...]
    critical: float
    interval: Interval
    scatter: float
    left_out: float
    constant: float


def fits() -> dict[str, Fit | None]:
    """The curves; None where the batch sizes show no bend."""
    amounts: dict[str, dict[int, float]] = defaultdict(dict)
    with MLPERF.open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if (row["benchmark"], int(row["batch_size"])) not in _SLIPS:
                amounts[row["benchmark"]][int(row["batch_size"])] = float(row["mean"])
    return {name: _fit(of) for name, of in amounts.items() if len(of) >= _LEAST}


def _fit(amounts: dict[int, float]) -> Fit | None:
    """Samples or epochs, divided by the batch size, are steps up to a factor that no batch size changes."""
    sizes = sorted(amounts)
    logs = np.log([amounts[size] / size for size in sizes])
    curve = fitted(sizes, logs)
    if curve is None:
        return None
    freedom = len(sizes) - 2
    squares = float((curve.residuals**2).sum())
    found = Student(curve.shape, math.sqrt(squares / freedom / curve.information), freedom).interval
    errors, constant = [], []
    for at, size in enumerate(sizes):
        others = [each for each in sizes if each != size]
        of = fitted(others, np.delete(logs, at))
        if of is not None:
            predicted = of.height + math.log1p(math.exp(of.shape) / size)
            errors.append(abs(math.expm1(predicted - float(logs[at]))))
        samples = float(np.mean([math.log(amounts[each]) for each in others]))
        constant.append(abs(math.expm1(samples - math.log(amounts[size]))))
    return Fit(
        tuple(sizes),
        math.exp(curve.shape),
        Interval(math.exp(found.low), math.exp(found.high)),
        math.sqrt(squares / len(sizes)),
        median(errors) if errors else math.nan,
        median(constant),
    )


def page(coverage: dict[str, Any]) -> str:
    """The page with its figures.

    Args:
        coverage: of `benchmarks.coverage`, by kind.
    """
    rows = [
        f"| {words} | {coverage[kind]['studies']:,} | {coverage[kind]['coverage']:.0%} |"
        for kind, words in _KINDS.items()
    ]
    return with_rows(PAGE.read_text(encoding="utf-8"), "| what | studies | intervals with the truth |", rows)
