"""How sure a study is of its figures: where a figure of a point lies, how far two points differ, and the critical batch
size of a series.

The points of a study have the same seeds, and what a seed does to one point it does to others too: the seed of a run
draws its first weights and the order of its samples. So points are compared seed by seed. Times are those of a machine
on one day, so a study that ran on several days compares them day by day. A time to a target is both: how many
mini-batches it takes is that of a seed, and how long one takes that of a day. Its interval is the wider of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from statistics import fmean
from typing import Literal

import numpy as np

from alray.config.study.points import label_of
from alray.config.study.section import BATCH_SIZE, SCORES
from alray.config.study.space import Distribution
from alray.core.counting import counted, setting_text
from alray.core.metric import Metric
from alray.core.run_folder.records import EvaluationRecord
from alray.report.spread import LEAST_FOR_SPREAD
from alray.studies.busy import is_disturbed
from alray.studies.confidence import (
    Confidence,
    Interval,
    Student,
    of_mean,
    spread_out,
)
from alray.studies.records import TrialRecord
from alray.studies.results import Results
from alray.studies.series import BatchSizeSeries, critical_batch_size, growth
from alray.studies.table import TIMES, PointRow, collapsed, value_of

_BY_AMOUNTS = (*SCORES, "bubble")
"""Metrics and shares of a whole: seeds differ by amounts. In all other figures they differ by factors."""
COUNTED = ("accuracy", "top_1")
"""Metrics that are a share of samples, each of which is right or wrong."""
_MOST_SAMPLES = 1_000_000
_EDGE = 0.05
"""A value within this share of its range from an end lies on the edge, on the scale of its distribution."""
_TIME_TO_TARGET = "seconds_to_target"
_OF_EVALUATIONS = ("steps_to_target", "samples_to_target")
"""Figures that are known to one interval between two evaluations."""
NO_FIGURE = "there is no such figure"
"""The doubt about a figure that no trial has."""
_SIGNS = (1, -1, -1, 1)
"""Of the points in a difference of two differences."""
Way = Literal["itself", "ratio", "difference"]
"""A figure of a point, divided by that of another one, or less that of another one."""


@dataclass(frozen=True)
class Doubted:
    """Where a figure lies; None where its doubt is not known.

    Attributes:
        confidence: of its logarithm if `by_factors`.
        reasons: why it is not known, and what else makes the figure doubtful.
        units: how many seeds, days, starts or runs it comes from, in words.
    """

    confidence: Confidence | None
    by_factors: bool
    reasons: tuple[str, ...] = ()
    units: str = ""

    @property
    def interval(self) -> Interval | None:
        if self.confidence is None:
            return None
        low, high = self.confidence.interval
        return Interval(self.shown(low), self.shown(high))

    def shown(self, value: float) -> float:
        """A value of the distribution as one of the figure."""
        return math.exp(value) if self.by_factors else value

    def scaled(self, value: float) -> float:
        """A value of the figure as one of the distribution."""
        if not self.by_factors:
            return value
        return math.log(value) if value > 0.0 else -math.inf


def of_point(results: Results, row: PointRow, name: str, samples: int | None = None) -> Doubted:
    """A figure of a point, by its name in `ROW_FIGURES`.

    Of a search it is the mean over all seeds of the best settings that were tried.

    Args:
        samples: the size of the set of an accuracy; None: it is not known.
    """
    return _compared(results, name, (row,), "itself", samples)


def of_two(
    results: Results,
    name: str,
    row: PointRow,
    other: PointRow,
    way: Way,
    than: Sequence[PointRow] = (),
    samples: int | None = None,
) -> Doubted:
    """A figure of a point divided by that of another one, or less that of another one. Without a search it is the mean
    over the seeds that both have.

    Args:
        than: two further points, whose difference is subtracted from this one.
        samples: as for `of_point`.
    """
    return _compared(results, name, (row, other, *than), way, samples)


def interval_of_point(results: Results, row: PointRow, name: str) -> Interval | None:
    """The 90 % interval of a figure of a point, as `of_point` understands it; None where its doubt is not known."""
    found = of_point(results, row, name).interval
    if found is None or name not in _BY_AMOUNTS or (name in SCORES and not results.metric.share):
        return found
    return Interval(max(0.0, found.low), min(1.0, found.high))


def interval_of_ratio(results: Results, name: str, over: PointRow, under: PointRow, factor: float) -> Interval | None:
    """The 90 % interval of factor * over / under of a figure of two points; None where its doubt is not known."""
    found = of_two(results, name, over, under, "ratio").interval
    return None if found is None else Interval(factor * found.low, factor * found.high)


def is_troubled(row: PointRow) -> bool:
    """Whether a seed of a point did not come to its end, or learned next to nothing."""
    return len(row.best) < row.tried or collapsed(row) > 0


def of_series(results: Results, of: Sequence[PointRow], over: Sequence[PointRow] = ()) -> Doubted:
    """The critical batch size of a series of batch sizes; with a second series, divided by that of this one.

    Every seed that both series have counts with its best settings at each batch size.
    """
    found, reasons = [], []
    both = [rows for rows in (of, over) if rows]
    seeds_of = [_seeds(results, rows) for rows in both]
    shared = sorted(set.intersection(*seeds_of))
    if len(shared) < (most := max(map(len, seeds_of))):
        reasons.append(f"the series share {len(shared)} of {counted(most, 'seed')}")
    for rows in both:
        series, of_it = _series(results, rows, _steps, shared)
        found.append(series)
        reasons += of_it
    seeds = len(shared)
    confidence = critical_batch_size(*found)
    if confidence is None:
        few = seeds < LEAST_FOR_SPREAD
        reasons.append(_few(seeds, "seed") if few else "the batch sizes show no bend of the curve")
    return Doubted(confidence, True, tuple(dict.fromkeys(reasons)), counted(seeds, "seed"))


def of_growth(results: Results, rows: Sequence[PointRow]) -> Doubted:
    """The power of the batch size by which the best effective rate of a series grows.

    Every seed counts with its best settings at each batch size.
    """
    of_rows = sorted(_seeds(results, rows))
    series, reasons = _series(results, rows, partial(_rate, results), of_rows)
    seeds = len(of_rows)
    confidence = growth(series)
    if confidence is None:
        few = seeds < LEAST_FOR_SPREAD
        reasons.append(_few(seeds, "seed") if few else f"{counted(len(series.sizes), 'batch size')} show no growth")
    return Doubted(confidence, False, tuple(dict.fromkeys(reasons)), counted(seeds, "seed"))


def _steps(record: TrialRecord) -> float:
    assert record.reached is not None, "the best trial of a seed reached the target"
    return record.reached.step


def _rate(results: Results, record: TrialRecord) -> float:
    """The effective rate of a trial; one less by a factor where the momentum is that of all trials."""
    return float(results.setting(record, "optimizer.lr")) / (1.0 - (results.momentum(record) or 0.0))


def _seeds(results: Results, rows: Sequence[PointRow]) -> set[int]:
    return {record.seed for row in rows for trials in results.settings_of(row) for record in trials}


def _series(
    results: Results, rows: Sequence[PointRow], figure: Callable[[TrialRecord], float], seeds: Sequence[int]
) -> tuple[BatchSizeSeries, list[str]]:
    """A figure of the best settings of each seed, at the batch sizes at which the trials of every seed reached the
    target."""
    reasons, sizes, columns = [], [], []
    for row in rows:
        reasons += [f"{label_of(row.point)}: {reason}" for reason in _unended(results, row)]
        records = [record for trials in results.settings_of(row) for record in trials]
        reached = [[each for each in records if each.seed == seed and each.reached] for seed in seeds]
        known = [figure(min(of_seed, key=_steps)) for of_seed in reached if of_seed]
        if len(known) < len(seeds):
            reasons.append(f"{label_of(row.point)}: {len(known)} of {counted(len(seeds), 'seed')} reached the target")
            continue
        sizes.append(row.point[BATCH_SIZE])
        columns.append(np.log(known))
        reasons += [sentence for _, _, sentence in not_bracketed(results, [row])]
    return BatchSizeSeries(tuple(sizes), np.asarray(columns).T.reshape(len(seeds), len(sizes))), reasons


def _compared(results: Results, name: str, rows: Sequence[PointRow], way: Way, samples: int | None) -> Doubted:
    """
    Args:
        rows: one; two for a ratio or a difference; four for a difference less that of the last two.
        samples: as for `of_point`.
    """
    by_factors = way == "ratio" or (way == "itself" and name not in _BY_AMOUNTS)
    reasons = [reason for row in rows for reason in _troubles(results, row, name)]
    records = [record for row in rows for record in row.best]
    if name in TIMES and (machines := results.machines_of(records)):
        reasons.append(f"the times are of different machines or versions ({machines})")
    if name in TIMES and (several := results.sessions_of_several_starts(records)):
        reasons.append(
            f"{counted(len(several), 'session')} of {results.study.sessions} began at several or unknown times"
        )
    if name in TIMES and results.study.max_concurrent != 1:
        reasons.append("trials may have run side by side, and so may have slowed each other down (max_concurrent)")
    to_target, search = name.endswith("_to_target"), results.study.search
    if to_target or name in SCORES:
        reasons += [sentence for _, _, sentence in not_bracketed(results, rows)]
    chose = to_target if results.study.target is not None else name == "validation"
    if chose and search is not None and search.trials > 1:
        reasons.append("the settings are the best of those tried on the same seeds, which the interval leaves out")
    for row in rows:
        if to_target and row.reached < row.tried:
            reasons.append(f"{row.reached} of {counted(row.tried, 'seed')} reached the target")
            return Doubted(None, by_factors, tuple(reasons))
    figures = [value for record in records if (value := value_of(record, name)) is not None]
    if by_factors and not all(value > 0.0 for value in figures):
        if way == "ratio":
            return Doubted(None, by_factors, (*reasons, "a ratio needs figures above 0"))
        by_factors = False
    for row in rows:
        if 0 < (lacking := sum(value_of(record, name) is None for record in row.best)) < len(row.best):
            lack = "lacks" if lacking == 1 else "lack"
            reasons.append(f"{lacking} of {counted(len(row.best), 'trial')} {lack} the figure")
    of_sessions = name in TIMES and results.study.sessions > 1
    unit_of = partial(_session_of, results) if of_sessions else _seed_of
    of_rows = [_by_unit(row, name, unit_of, by_factors=by_factors) for row in rows]
    values = _combined(of_rows)
    if name in _OF_EVALUATIONS and values:
        values = spread_out(values, sum(_grain(results, row, name, by_factors=by_factors) for row in rows))
    elif name in SCORES and results.metric.share and _tie(values) and not _have_same_weights(rows):
        share = _share_of_a_sample(results.metric, figures, samples)
        if share is None:
            reasons.append("all seeds are equal, and what one sample changes is not known")
            return Doubted(None, by_factors, tuple(reasons), counted(len(values), "seed"))
        of_each = (math.log1p(share / min(figures)) if by_factors else share for _ in rows)
        values = spread_out(values, sum(of_each))
    confidence = of_mean(values)
    unit = results.unit_of_times if name in TIMES else "seed"
    units = results.when(len(values)) if name in TIMES else counted(len(values), unit)
    few = _few(len(values), unit)
    if of_sessions and name == _TIME_TO_TARGET and confidence is not None:
        of_seeds = _combined([_by_unit(row, name, _seed_of, by_factors=by_factors) for row in rows])
        confidence, few = _wider(confidence, of_mean(of_seeds)), _few(len(of_seeds), "seed")
        units += f"; {counted(len(of_seeds), 'seed')}"
    if len(values) < min(map(len, of_rows)):
        most = counted(max(map(len, of_rows)), "seed" if unit == "run" else unit)
        reasons.append(f"the points share {len(values)} of {most}")
    if not all(of_rows):
        reasons.append(NO_FIGURE)
    elif not all(map(math.isfinite, values)):
        reasons.append("not all of its values are finite")
    elif confidence is None and values:
        reasons.append(few)
    return Doubted(confidence, by_factors, tuple(dict.fromkeys(reasons)), units)


def _troubles(results: Results, row: PointRow, name: str) -> Iterator[str]:
    """What happened to seeds of a point that makes its figures doubtful."""
    unit = "trial" if results.study.sessions > 1 else "seed"
    yield from _unended(results, row)
    if (lacking := row.tried - len(row.best)) > 0:
        yield f"{counted(lacking, unit)} of {row.tried} did not come to an end"
    if name in TIMES and (disturbed := sum(map(is_disturbed, row.best))):
        yield f"other programs took processors from {counted(disturbed, 'trial')} of {len(row.best)}"
    if (lost := collapsed(row)) and name in SCORES:
        yield f"{counted(lost, unit)} of {row.tried} learned next to nothing"


def _unended(results: Results, row: PointRow) -> Iterator[str]:
    """That trials of a point are still to run, as after Ctrl-C."""
    study = results.study
    trials = study.repeats * study.sessions * (study.search.trials if study.search is not None else 1)
    if row.trials < trials:
        yield f"{row.trials} of {counted(trials, 'trial')} have ended"


def _few(count: int, unit: str) -> str:
    return f"one {unit} shows no spread" if count == 1 else f"{counted(count, unit)} show no spread"


def _by_unit(row: PointRow, name: str, unit_of: Callable[[TrialRecord], int], *, by_factors: bool) -> dict[int, float]:
    """The figure of each unit of a point: the mean over its trials, as a logarithm if `by_factors`."""
    found: dict[int, list[float]] = {}
    for record in row.best:
        value = value_of(record, name)
        if value is not None:
            found.setdefault(unit_of(record), []).append(math.log(value) if by_factors else value)
    return {unit: fmean(values) for unit, values in found.items()}


def _seed_of(record: TrialRecord) -> int:
    return record.seed


def _session_of(results: Results, record: TrialRecord) -> int:
    """The day of a trial in a study of several sessions, or its start before the third day."""
    return results.days[record.session] if results.unit_of_times == "day" else record.session


def _combined(of_rows: Sequence[dict[int, float]]) -> list[float]:
    """The figure, difference or difference of differences of each unit that all points have."""
    shared = [unit for unit in of_rows[0] if all(unit in each for each in of_rows)]
    return [sum(sign * each[unit] for sign, each in zip(_SIGNS, of_rows, strict=False)) for unit in shared]


def _wider(one: Student, other: Student | None) -> Student | None:
    """The distribution with the wider interval; None where one is not known."""
    return None if other is None else max(one, other, key=lambda each: each.interval.high - each.interval.low)


def _tie(values: Sequence[float]) -> bool:
    finite = len(values) > 1 and math.isfinite(values[0])
    return finite and all(math.isclose(each, values[0], rel_tol=1e-9, abs_tol=1e-9) for each in values)


def _have_same_weights(rows: Sequence[PointRow]) -> bool:
    """Whether the points of each difference end in the same weights, seed by seed: then no chance tells them apart."""
    weights = [row.weights for row in rows]
    pairs = list(zip(weights[::2], weights[1::2], strict=False))
    return bool(pairs) and all(one is not None and one == other for one, other in pairs)


def _share_of_a_sample(metric: Metric, figures: Sequence[float], samples: int | None) -> float | None:
    """What one sample is of figures that tie, and that may differ by as much on more samples; None where it is not
    known. Where no size of the set is given, it is a multiple of each denominator of an accuracy. So the largest one,
    which is no larger than the set, stands for it."""
    if metric.name not in COUNTED:
        return None
    if samples is None:
        known = filter(math.isfinite, figures)  # a seed that only one point has may lack a number
        samples = max(Fraction(each).limit_denominator(_MOST_SAMPLES).denominator for each in known)
        if samples == 1:
            return None
    return 1.0 / samples


def _grain(results: Results, row: PointRow, name: str, *, by_factors: bool) -> float:
    """The longest interval, of all seeds of a point, from the evaluation before to the one that reached the target: in
    steps or samples, on a scale of logarithms if `by_factors`. Where records are gone, as those of a committed report
    are, it is the greatest number that divides what all trials of the point took."""
    reached = [value for record in row.best if (value := value_of(record, name)) is not None]
    if all(results.records_of(record) for record in row.best):
        shares = [_share_since_evaluation(results, record) for record in row.best]
    else:
        of_all = [value_of(record, name) or 0.0 for trials in results.settings_of(row) for record in trials]
        divisor = math.gcd(*map(round, of_all))
        shares = [divisor / value for value in reached]
    if by_factors:
        return math.log1p(max(shares))
    return max(share * value for share, value in zip(shares, reached, strict=True))


def _share_since_evaluation(results: Results, record: TrialRecord) -> float:
    """Of the way of a trial to the target, the share since the evaluation before: all of it if there was none."""
    reached = _steps(record)
    evaluated = (each.step for each in results.records_of(record) if isinstance(each, EvaluationRecord))
    return 1.0 - max((step for step in evaluated if step < reached), default=0) / reached


def not_bracketed(results: Results, rows: Sequence[PointRow]) -> Iterator[tuple[PointRow, str, str]]:
    """The points whose best settings no search has bracketed, with the key and a sentence about it: the value lies on
    the edge of its range, or it is the smallest or the largest that was tried, also of a choice of numbers. Trials that
    failed tried nothing."""
    search = results.study.search
    if search is None:
        return
    for row in rows:
        where = f"{label_of(row.point)}: " if row.point else ""
        ran = [each for settings in results.settings_of(row) for each in settings if each.status != "failed"]
        for key, distribution in search.space_at(row.point).items():
            if key not in row.settings or not _has_an_order(distribution):
                continue
            value, tried = row.settings[key], {record.values[key] for record in ran}
            if why := _edge(distribution, value) or _outermost(tried, value):
                yield row, key, f"{where}the best {key}, {setting_text(value)}, is not bracketed: {why}"


def _has_an_order(distribution: Distribution) -> bool:
    """Whether one value can be larger than another one: not those of a choice of names, nor a single one."""
    choice = distribution.choice
    numbers = [isinstance(each, int | float) and not isinstance(each, bool) for each in choice or ()]
    return choice is None or (len(choice) > 1 and all(numbers))


def _edge(distribution: Distribution, value: float) -> str:
    share = distribution.share(value)
    if share is None or _EDGE < share < 1.0 - _EDGE:  # a choice has no edge
        return ""
    low, high = distribution.ends
    end = "lower" if share <= _EDGE else "upper"
    return f"it lies at the {end} end of its range [{low:g}, {high:g}]; widen the range"


def _outermost(tried: set[float], value: float) -> str:
    if min(tried) < value < max(tried):
        return ""
    if len(tried) == 1:
        return "no other was tried; try more"
    end = "smallest" if value == min(tried) else "largest"
    return f"it is the {end} of {len(tried)} that were tried; try more"
