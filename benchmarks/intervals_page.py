"""docs/intervals.md: how often intervals contain the truth, how well the curve of batch sizes fits the reference runs
of MLPerf, and how far one run shows the critical batch size."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any, NamedTuple

import numpy as np

from alray.studies.confidence import Interval, Student
from alray.studies.series import fitted
from benchmarks.branches import LARGEST, OF_LOSS, RULES, SMALLEST, TOLERANCE, WINDOW, no_worse, samples_of
from benchmarks.noise_scale import EVERY, OF_RUN, over_run

DOCS = Path(__file__).parents[1] / "docs"
MLPERF = DOCS / "published_runs" / "mlperf_batch_sizes.csv"
STUDY = DOCS / "studies" / "batch_size"
_SLIPS = {("cosmoflow", 32), ("gpt3", 3072)}
"""Another setting than at the other batch sizes; one run that is ten times the others. The file says so."""
_LEAST = 4
"""Batch sizes of a curve: two are its numbers, and the others show whether it fits."""
_KINDS = {
    "paired_seeds": "ratio of steps, three seeds that two variants share",
    "five_paired_seeds": "the same, five seeds",
    "sessions": "ratio of times, five sessions of two turns",
    "one_session": "ratio of times, one session of three turns: how many contain the mean over all sessions",
    "searches": "ratio of the best settings of two searches, 16 independent settings each, three seeds",
    "even_searches": "the same, settings that cover the space evenly, as studies draw them",
    "six_settings": "the same, six settings of each search",
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


def _of_study(claim: str = "Critical batch size") -> dict[str, dict[str, float]]:
    """What the study says of each series, with the ends of its interval, in answer to the claim that begins so."""
    answers = json.loads((STUDY / "verdicts.json").read_text(encoding="utf-8"))["verdicts"]
    (compared,) = [each["compared"] for each in answers if each["claim"].startswith(claim)]
    return {each["point"].removeprefix("variant="): each for each in compared}


def _in_brackets(value: float, low: float, high: float) -> str:
    return f"{value:,.0f} ({low:,.0f} to {high:,.0f})"


def _noise_scales(noise: dict[str, Any]) -> Iterator[str]:
    """The rows of the table of noise scales, beside the critical batch sizes of the study."""
    of_study = _of_study()
    for name, found in noise.items():
        curve = of_study[name]
        runs = [list(steps.values()) for steps in found]
        first, last = ([scales[at] for scales in runs] for at in (0, -1))
        scales = [over_run(each, OF_RUN) for each in runs]
        texts = [_in_brackets(fmean(each), min(each), max(each)) for each in (first, last, scales)]
        texts.append(_in_brackets(curve["value"], curve["low"], curve["high"]))
        yield f"| {name} | {' | '.join(texts)} | {fmean(scales) / curve['value']:.2f} |"


def _of_branches(branches: dict[str, Any]) -> Iterator[str]:
    """The rows of the table of branches, beside the critical batch sizes of the study."""
    of_study, trained = _of_study(), _samples_of_study()
    for name, found in branches.items():
        curve, share = of_study[name], sum(map(samples_of, found)) / trained[name]
        for rule in RULES:
            sizes = [
                [no_worse({int(at): loss for at, loss in each["losses"][rule].items()}) for each in of] for of in found
            ]
            of_seeds = [geometric_mean(each) for each in sizes]
            columns = [geometric_mean(each) for each in zip(*sizes, strict=True)]
            texts = [f"{each:,.0f}" for each in columns]
            texts.append(_in_brackets(geometric_mean(of_seeds), min(of_seeds), max(of_seeds)))
            texts.append(_in_brackets(curve["value"], curve["low"], curve["high"]))
            ratio = geometric_mean(of_seeds) / curve["value"]
            yield f"| {name} | {rule} | {' | '.join(texts)} | {ratio:.2f} | {share:.1%} |"


def _samples_of_study() -> dict[str, float]:
    """The samples that all trials of each series of the study trained."""
    found: dict[str, float] = defaultdict(float)
    with (STUDY / "tables" / "trials.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["variant"]] += float(row["steps"]) * int(row["data.batch_size"])
    return found


def page(coverage: dict[str, Any], noise: dict[str, Any], branches: dict[str, Any]) -> str:
    """The page's text.

    Args:
        coverage: of `benchmarks.coverage`, by kind.
        noise: of `benchmarks.noise_scale`.
        branches: of `benchmarks.branches`.
    """
    rows = [
        f"| {words} | {coverage[kind]['studies']:,} | {coverage[kind]['coverage']:.0%} |"
        for kind, words in _KINDS.items()
    ]
    lines, bent = [], []
    for name, fit in fits().items():
        if fit is None:
            lines.append(f"| {name} | | | | | |")
            continue
        bent.append(fit)
        low, high = (f"{end:,.0f}" for end in fit.interval)
        sizes = f"{len(fit.sizes)} ({fit.sizes[0]:,} to {fit.sizes[-1]:,})"
        errors = " | ".join(f"{each:.1%}" for each in (fit.scatter, fit.left_out, fit.constant))
        lines.append(f"| {name} | {sizes} | {fit.critical:,.0f} ({low} to {high}) | {errors} |")
    powers = _of_study("Power of the batch size")
    growths = " and ".join(f"the power {powers[name]['value']:.2f} ({name})" for name in branches)
    points = [each["samples"] for each in next(iter(branches.values()))[0]]
    better = sum(fit.left_out < fit.constant for fit in bent)
    return f"""\
# How far intervals can be relied on

Written by `make publish` from what `python -m benchmarks.coverage`, `python -m benchmarks.noise_scale` and `python -m
benchmarks.branches` measure, and from `docs/published_runs/mlperf_batch_sizes.csv`.

## How often they contain the truth

Made-up studies whose truth is known. Seeds do something to all points alike, and so do sessions. An interval of 90 %
should contain the truth in 90 % of studies.

| what | studies | intervals with the truth |
|---|---|---|
{chr(10).join(rows)}

In the made-up studies of times a session moves each variant by 3 %, and trials within a session differ by 1 %. The
interval of one session says little of other sessions, so a study that ran once decides no claim about times.
Settings that cover the space evenly lie closer to the best than independent ones, so intervals of such a search are
wider than they need to be. The noisy quadratic is half the square of x; its gradient shows a twentieth of the
coordinates, with noise, so its critical batch size is known.

## Whether steps by batch size follow the curve

S(B) = S_min (1 + B_c / B), fitted to the reference convergence points of MLPerf: the mean epochs or samples to a fixed
quality by batch size, where the hyperparameters were chosen anew for each batch size. Left out are the points that
their source marks as another setting or a slip. The scatter is that of the points about the curve. *Left out* is the
median error of the steps at a batch size that the curve through the others predicts; *no bend* is that of the same
samples at every batch size.

| benchmark | batch sizes | critical batch size (90 %) | scatter | left out | no bend |
|---|---|---|---|---|---|
{chr(10).join(lines)}

In {better} of {len(lines)} benchmarks the curve predicts better than the same samples at every batch size.

## Whether one run shows the critical batch size

The noise scale of a network in training is the variance of the gradient of one sample over the square of the gradient
of all. Where all directions curve alike, it is the critical batch size (McCandlish et al. 2018, section 2.2): of the
noisy quadratic above it is, within 5 % (`tests/benchmarks/test_coverage.py`). Here it is measured every {EVERY}
mini-batches, with 8,192 samples each time, of the runs whose settings were the best of
[batch_size](studies/batch_size/README.md) for {OF_RUN} samples: the mean over three seeds, and in brackets the lowest
and the highest of them. Over a run it is a mean in which each step counts as far as it comes: by steps of the full
gradient, 1 / (1 + b / B), where b is the noise scale and B the mini-batch (section 2.2).

The critical batch size is that of the study, with its 90 % interval; the last column is the third divided by it.
The noise scale is of the network and its data alone, so it hardly tells optimizers apart: their critical batch sizes
differ.

| run | after {EVERY} mini-batches | last before the target | over the run | critical batch size | ratio |
|---|---|---|---|---|---|
{chr(10).join(_noise_scales(noise))}

## Whether branches of one run show it

At {len(points)} points of a run with mini-batches of {SMALLEST} samples, copies of it go on with larger ones, each for
{WINDOW:,} samples. The critical batch size there is the largest one whose loss is at most {TOLERANCE} above that of
every smaller one (Merrill et al. 2025, arXiv 2505.23971, section 3.1). As there, the loss is a moving average; here it
is that of {OF_LOSS:,} samples of the training set. Batch sizes double up to {LARGEST:,}, and end at the first that is
worse. The rate grows with the batch size, or with its square root: the paper has the first for SGD, and the second for
Adam.

The runs have the settings that were the best of [batch_size](studies/batch_size/README.md) for {SMALLEST} samples; the
search of them is not counted here. Each figure is a geometric mean over three seeds; in brackets are the lowest and the
highest of them. The ratio is that of the mean over the points to the critical batch size of the study. The last column
has the samples of all runs and branches, by both rules, as a share of those that the study trained.

In the study the best rate grows as {growths} of the batch size.
Where a rule lets it grow faster, the rate fails before the batch size does.

| run | rate | {" | ".join(f"after {at:,} samples" for at in points)} | mean | critical batch size | ratio | samples |
|---|---|{"---|" * len(points)}---|---|---|---|
{chr(10).join(_of_branches(branches))}
"""
