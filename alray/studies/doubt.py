"""How sure a study is of its figures: draws from the confidence distributions of its points and series."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from alray.config.study.points import label_of
from alray.core.counting import counted
from alray.studies.batch_size import Regimes, at_the_edge, regimes
from alray.studies.confidence import LEVEL, Confidence, Interval, noise_of_means, of_best, of_mean, spread_out
from alray.studies.records import TrialRecord
from alray.studies.results import BATCH_SIZE, Results
from alray.studies.table import SCORES, PointRow, collapsed, value_of

DRAWS = 1_000
_BY_AMOUNTS = (*SCORES, "bubble", "exit_time")
"""Metrics and shares of a whole: seeds differ by amounts. In all other figures they differ by factors."""


@dataclass(frozen=True)
class Doubted:
    """A figure as draws from its confidence distribution, shape [DRAWS]; None where its doubt is not known.

    Attributes:
        reasons: why it is not known, and what else makes the figure doubtful.
        ends: the least and the most that each draw may stand for, where a study shows only that a figure lies beyond
            what was tried; None: each draw stands for itself.
    """

    draws: NDArray[np.float64] | None
    reasons: tuple[str, ...] = ()
    ends: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None


def of_point(results: Results, row: PointRow, name: str) -> Doubted:
    """A figure of a point, by its name in `ROW_FIGURES`.

    Of a search, the way to the target is that of the best settings there are (`confidence.of_best`). Any other figure
    is the mean over all seeds of the settings that were chosen.
    """
    confidence, reasons = _confidence(results, row, name)
    if confidence is None:
        return Doubted(None, reasons)
    drawn = confidence.draws(_generator(label_of(row.point), name), DRAWS)
    return Doubted(drawn if name in _BY_AMOUNTS else np.exp(drawn), reasons)


def interval_of_point(results: Results, row: PointRow, name: str) -> Interval | None:
    """The 90 % interval of a figure of a point, as `of_point` understands it; None where its doubt is not known."""
    confidence, _ = _confidence(results, row, name)
    if confidence is None:
        return None
    low, high = confidence.interval
    if name not in _BY_AMOUNTS:
        return Interval(math.exp(low), math.exp(high))
    if name in SCORES and not results.metric.share:
        return Interval(low, high)
    return Interval(max(0.0, low), min(1.0, high))


def interval_of_ratio(results: Results, name: str, over: PointRow, under: PointRow, factor: float) -> Interval | None:
    """The 90 % interval of factor * over / under of a figure of two points; None where the doubt of one is not
    known."""
    draws = [of_point(results, row, name).draws for row in (over, under)]
    if draws[0] is None or draws[1] is None:
        return None
    ends = np.quantile(factor * draws[0] / draws[1], [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return Interval(float(ends[0]), float(ends[1]))


def is_troubled(row: PointRow) -> bool:
    """Whether a seed of a point did not come to its end, or learned next to nothing."""
    return len(row.best) < row.tried or collapsed(row) > 0


def _confidence(results: Results, row: PointRow, name: str) -> tuple[Confidence | None, tuple[str, ...]]:
    """Where a figure of a point lies, as logarithms where seeds differ by factors, and the reasons to doubt it."""
    reasons = []
    if (lacking := row.tried - len(row.best)) > 0:
        reasons.append(f"{counted(lacking, 'seed')} of {row.tried} did not come to an end")
    if (lost := collapsed(row)) and name in SCORES:
        reasons.append(f"{counted(lost, 'seed')} of {row.tried} learned next to nothing")
    to_target = name.endswith("_to_target")
    if to_target and results.study.search is not None:
        confidence, reason = _of_search(results, row, name)
    elif to_target and 0 < row.reached < row.tried:
        confidence, reason = None, f"{row.reached} of {counted(row.tried, 'seed')} reached the target"
    else:
        values = _scaled(name, row.best)
        confidence = of_mean(values)
        shows = "one seed shows" if len(values) == 1 else f"{counted(len(values), 'seed')} show"
        reason = f"{shows} no spread" if values else "there is no such figure"
    if confidence is None:
        return None, (*reasons, reason)
    if to_target and results.study.search is not None and results.study.repeats == 1:
        reasons.append("one seed: what chance does to a single trial is not known")
    if to_target and results.study.search is not None:
        reasons += [sentence for _, _, sentence in at_the_edge(results.study.search, [row])]
    return confidence, tuple(reasons)


def of_series(results: Results, rows: Sequence[PointRow]) -> tuple[list[Regimes], tuple[str, ...]]:
    """The regimes of a series of batch sizes, once for each draw of the mini-batches to the target, and what makes them
    doubtful. Empty if the doubt of a batch size is not known."""
    missed = {row.point[BATCH_SIZE]: row.steps or 0 for row in rows if row.figures["steps_to_target"] is None}
    steps = {
        row.point[BATCH_SIZE]: of_point(results, row, "steps_to_target")
        for row in rows
        if row.point[BATCH_SIZE] not in missed
    }
    reasons = tuple(
        dict.fromkeys(f"batch size {size:,}: {reason}" for size, each in steps.items() for reason in each.reasons)
    )
    drawn = {size: each.draws for size, each in steps.items() if each.draws is not None}
    if len(drawn) < len(steps):
        return [], reasons
    found = [regimes({size: float(draws[at]) for size, draws in drawn.items()}, missed) for at in range(DRAWS)]
    return [each for each in found if each is not None], reasons


def _of_search(results: Results, row: PointRow, name: str) -> tuple[Confidence | None, str]:
    """The best that any settings have, on a scale of logarithms. Settings count as tried in vain unless every seed
    reached the target."""
    search = results.study.search
    assert search is not None
    if search.kind != "random" or results.study.trial_scheduler.kind != "fifo":
        return (
            None,
            "settings that follow from earlier trials, and trials that end early, do not show the best there is",
        )
    dimensions = sum(each.choice is None for each in search.space_at(row.point).values())
    settings = results.settings_of(row)
    reached = [each for each in settings if all(record.reached is not None for record in each)]
    if len(reached) < 2 or dimensions == 0:
        return None, f"{counted(len(reached), 'setting')} of {len(settings)} reached the target"
    of_each = [_scaled(name, each) for each in reached]
    means = [math.fsum(each) / len(each) for each in of_each]
    if name == "steps_to_target":
        means = _ungrained([each[0].reached.step for each in reached if each[0].reached is not None], means)
    noise = noise_of_means(of_each) or 0.0
    return of_best(means, dimensions=dimensions, noise=noise, trials=len(settings)), ""


def _ungrained(steps: Sequence[int], logs: Sequence[float]) -> list[float]:
    """Logarithms of steps, of which those that are equal are spread over the interval between two evaluations."""
    grain = reduce(math.gcd, steps)
    typical = math.exp(min(logs))
    return spread_out(logs, math.log1p(grain / max(typical, grain)))


def _scaled(name: str, records: Sequence[TrialRecord]) -> list[float]:
    """The values of a figure that records have, as logarithms where seeds differ by factors."""
    values = [value for record in records if (value := value_of(record, name)) is not None]
    return values if name in _BY_AMOUNTS else [math.log(value) for value in values if value > 0.0]


def _generator(*purpose: str) -> np.random.Generator:
    """Draws that are the same whenever the report is written again, and independent for each figure of each point."""
    return np.random.default_rng(zlib.crc32("\n".join(purpose).encode()))
