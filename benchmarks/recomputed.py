"""Recompute every verdict of docs/studies from the committed tables alone, by code that shares none of alray's.

    python -m benchmarks.recomputed

It reads tables/trials.csv and the claims in verdicts.json, and exits with 1 where a verdict or an interval differs. The
formulas are those of docs/studies.md, computed another way where there is one: t by the incomplete beta function, a
curve by a general least-squares routine.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares
from scipy.special import betainc
from scipy.stats import norm

REPORTS = Path(__file__).parents[1] / "docs" / "studies"
OPEN = "not decided by this study"
AMOUNTS = ("validation", "test", "bubble", "growth_of_best_rate")
OF_SERIES = ("critical_batch_size", "growth_of_best_rate")
SMALLEST_IS_BEST = (
    *("step_time_s", "training_s", "epoch_s", "forward_s", "backward_s", "update_s", "bubble"),
    *("parameters", "peak_memory_bytes", "bytes_sent", "all_reduce_bytes", "steps_to_target", "samples_to_target"),
    *("seconds_to_target", "predicted_step_time_s", "predicted_memory_bytes"),
)
OF_TIMES = (
    *("step_time_s", "predicted_step_time_s", "samples_per_s", "bubble", "training_s", "epoch_s", "forward_s"),
    *("backward_s", "update_s", "seconds_to_target"),
)
_ASKS = ("figure", "of", "over", "minus", "than", "samples")
"""Keys of a claim that say which figure it is about."""
ENDED = ("finished", "reached")
TOLERANCE = 0.01
"""Of p-values and of the ends of intervals, as a share of their width. Distributions by numbers differ by less."""

Values = dict[int, float]
Row = dict[str, str]
SHARES = np.linspace(0.0005, 0.9995, 1_000)


class Estimate:
    """A mean with its standard error and degrees of freedom, and beside it the standard error of the test set."""

    def __init__(self, mean: float, error: float, freedom: float, of_set: float = 0.0) -> None:
        self.mean, self.error, self.freedom, self.of_set = mean, error, freedom, of_set

    def less_than(self, bound: float) -> float:
        """How sure it is that the truth lies below."""
        if self.of_set > 0.0:
            return float(np.interp(bound, [self.at(share) for share in SHARES], SHARES))
        if self.error == 0.0:
            return 0.5 if math.isclose(self.mean, bound, rel_tol=1e-9, abs_tol=1e-9) else float(self.mean < bound)
        return t_below((bound - self.mean) / self.error, self.freedom)

    def at(self, share: float) -> float:
        t = float(brentq(lambda x: t_below(x, self.freedom) - share, -1e4, 1e4, xtol=1e-12))
        squares = (t * self.error) ** 2 + (float(norm.ppf(share)) * self.of_set) ** 2
        return self.mean + math.copysign(math.sqrt(squares), t)


def t_below(x: float, freedom: float) -> float:
    tail = 0.5 * float(betainc(freedom / 2, 0.5, freedom / (freedom + x * x)))
    return 1.0 - tail if x > 0 else tail


def of_values(values: Sequence[float]) -> Estimate | None:
    if len(values) < 3:
        return None
    array = np.asarray(values)
    return Estimate(float(array.mean()), float(array.std(ddof=1) / math.sqrt(len(array))), len(array) - 1)


class StudyTables:
    """One report: the study as it ran, its claims, and the rows of its trials."""

    def __init__(self, folder: Path) -> None:
        kept = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
        self.name, self.study, self.answers = folder.name, kept["study"], kept["verdicts"]
        with (folder / "tables" / "trials.csv").open(encoding="utf-8") as file:
            self.rows = list(csv.DictReader(file))
        self.axes = list(self.study["axes"])
        self.search, self.target = self.study["search"], self.study["target"]

    def points(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(tuple(row[axis] for axis in self.axes) for row in self.rows))

    def at(self, point: tuple[str, ...]) -> list[Row]:
        return [row for row in self.rows if tuple(row[axis] for axis in self.axes) == point]

    def settings(self, point: tuple[str, ...]) -> list[list[Row]]:
        """The trials of a point by what was searched there: trials of one setting follow each other in a session."""
        found: dict[int, list[Row]] = defaultdict(list)
        for of_session in by(session, self.at(point)).values():
            for at, row in enumerate(of_session):
                found[at // self.study["repeats"]].append(row)
        return list(found.values())

    def chosen(self, point: tuple[str, ...]) -> list[Row]:
        """The best settings: with a target those of most seeds, then fewest steps; else the best validation."""

        def cost(rows: list[Row]) -> tuple[float, ...]:
            ended = [row for row in rows if row["status"] in ENDED]
            scores = [float(row["validation"]) for row in ended if row["validation"]]
            by_score = (-len(ended) / len(rows), -float(np.mean(scores)) if scores else 0.0)
            if self.target is None:
                return by_score
            steps = [float(row["steps_to_target"]) for row in rows if row["steps_to_target"]]
            return (-len(steps) / len(rows), float(np.mean(steps)) if steps else 0.0, *by_score)

        return min(self.settings(point), key=cost)

    def values(self, point: tuple[str, ...], figure: str, *, logs: bool, of_seeds: bool = False) -> Values:
        """The figure of each seed, of times in a study of several sessions that of each day, or of each session before
        the third day unless `of_seeds`: a mean over trials."""
        ended = [row for row in self.chosen(point) if row["status"] in ENDED and row.get(figure)]
        unit = seed
        if figure in OF_TIMES and self.several_sessions and not of_seeds:
            unit = session if self.days < 3 else self.day
        scaled = math.log if logs else float
        return {
            each: float(np.mean([scaled(float(row[figure])) for row in rows])) for each, rows in by(unit, ended).items()
        }

    @property
    def several_sessions(self) -> bool:
        return int(self.study.get("sessions", 1)) > 1

    @property
    def days(self) -> int:
        return len({self.day(row) for row in self.rows})

    def day(self, row: Row) -> int:
        """The number of the day on which the session of a trial began. A session less than an hour after another one
        belongs to its day, and one whose start is not known to the first."""
        starts = sorted({each["began"] for each in self.rows if each.get("began")})
        numbers, number = {"": 0}, 0
        for before, after in pairwise(["", *starts]):
            if before and before[:10] != after[:10]:
                apart = datetime.fromisoformat(after) - datetime.fromisoformat(before)
                number += apart.total_seconds() >= 3600
            numbers[after] = number
        return numbers[row.get("began") or ""]


def seed(row: Row) -> int:
    return int(row["seed"])


def session(row: Row) -> int:
    return int(row.get("session") or 0)


def by(unit: Callable[[Row], int], rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[unit(row)].append(row)
    return found


def text(value: Any) -> str:
    """A value of a study as the tables write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(text, value))}]"
    if isinstance(value, dict):
        others = ", ".join(f"{key} {text(each)}" for key, each in value.items() if key != "kind")
        return f"{value['kind']} ({others})" if others else text(value["kind"])
    return str(value)


def matches(tables: StudyTables, point: tuple[str, ...], selector: dict[str, Any]) -> bool:
    of = dict(zip(tables.axes, point, strict=True))
    return all(axis in of and _equal(of[axis], text(value)) for axis, value in selector.items())


def _equal(cell: str, wanted: str) -> bool:
    try:
        return float(cell) == float(wanted)
    except ValueError:
        return cell.replace('"', "") == wanted.replace('"', "")


def comparisons(tables: StudyTables, claim: dict[str, Any]) -> Iterator[list[Estimate | None]]:
    """At each point of a claim: the figure, or its ratio to or difference from each of the others."""
    others = claim["over"] or claim["minus"]
    than = claim.get("than") or {}
    named = {axis for selector in (claim["of"], *others, than) for axis in selector}
    series = claim["figure"] in OF_SERIES
    points = tables.points()
    if series:
        rest = [axis for axis in tables.axes if axis != "data.batch_size"]
        groups: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for point in points:
            groups[tuple(point[tables.axes.index(axis)] for axis in rest)].append(point)
        units = list(groups.values())
    else:
        units = [[point] for point in points]
    for unit in units:
        if not matches(tables, unit[0], claim["of"]):
            continue
        same = {
            axis: value
            for axis, value in zip(tables.axes, unit[0], strict=True)
            if axis not in named and not (series and axis == "data.batch_size")
        }
        beside = [
            other
            for selector in others
            for other in units
            if matches(tables, other[0], selector)
            and all(dict(zip(tables.axes, other[0], strict=True))[axis] == value for axis, value in same.items())
        ]
        if series:
            fit = bend if claim["figure"] == "critical_batch_size" else power
            yield [curve(tables, fit, unit, *beside)]
        elif not others:
            yield [sampled(tables, claim, [unit[0]], figure(tables, claim, [unit[0]]))]
        else:
            pairs = [[unit[0], other[0], *at(tables, than, unit[0], other[0])] for other in beside]
            yield [sampled(tables, claim, pair, figure(tables, claim, pair)) for pair in pairs] or [None]


def at(tables: StudyTables, values: dict[str, Any], *points: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The same points at other values of axes; none without values."""
    moved = [
        tuple(text(values[axis]) if axis in values else cell for axis, cell in zip(tables.axes, point, strict=True))
        for point in points
    ]
    return moved if values else []


def figure(tables: StudyTables, claim: dict[str, Any], points: list[tuple[str, ...]]) -> Estimate | None:
    name = claim["figure"]
    logs = bool(claim["over"]) or (not claim["minus"] and name not in AMOUNTS)
    if name.endswith("_to_target") and not all(row[name] for point in points for row in tables.chosen(point)):
        return None
    values = compared([tables.values(point, name, logs=logs) for point in points])
    if name == "seconds_to_target" and tables.several_sessions:
        by_session = of_values(values)
        by_seed = of_values(compared([tables.values(point, name, logs=logs, of_seeds=True) for point in points]))
        if by_session is None or by_seed is None:
            return None
        return max(by_session, by_seed, key=lambda each: each.at(0.95) - each.at(0.05))
    if name in ("steps_to_target", "samples_to_target"):
        values = spread(np.asarray(values), sum(evaluations_apart(tables, name, point) for point in points)).tolist()
    if name in ("validation", "test") and len(values) > 1 and max(values) - min(values) < 1e-9:
        shares = [
            float(row[name]) for point in points for row in tables.chosen(point) if row["status"] in ENDED and row[name]
        ]
        samples = claim.get("samples") or max(denominator(share) for share in shares)
        if samples == 1:
            return None
        grain = math.log1p(1 / samples / min(shares)) if logs else 1 / samples
        values = spread(np.full(len(values), values[0]), len(points) * grain).tolist()
    return of_values(values)


def compared(of_points: list[Values]) -> list[float]:
    """At each seed or session that all points have: the figure, its difference, or a difference of differences."""
    shared = [unit for unit in of_points[0] if all(unit in each for each in of_points)]
    return [sum(sign * each[unit] for sign, each in zip((1, -1, -1, 1), of_points, strict=False)) for unit in shared]


def denominator(share: float) -> int:
    """The fewest samples of which this is a share: a lower bound of the size of the set."""
    counts = range(1, 1_000_001)
    return next((count for count in counts if abs(share * count - round(share * count)) < 1e-12 * count), counts[-1])


def sampled(
    tables: StudyTables, claim: dict[str, Any], points: list[tuple[str, ...]], found: Estimate | None
) -> Estimate | None:
    """The estimate with the sampling error of the test set."""
    if found is None or not claim.get("samples"):
        return found
    means = [float(np.mean(list(tables.values(point, claim["figure"], logs=False).values()))) for point in points]
    n = claim["samples"]
    smoothed = (n + 1) / (n + 2)  # by Laplace's rule of succession, where all are right or none
    variance = sum(max(mean * (1 - mean), smoothed * (1 - smoothed)) for mean in means) / n
    return Estimate(found.mean, found.error, found.freedom, of_set=math.sqrt(variance))


def evaluations_apart(tables: StudyTables, name: str, point: tuple[str, ...]) -> float:
    """How far apart two evaluations lie, as a logarithm: by what divides the steps of all trials of a point."""
    divisor = math.gcd(*(int(float(row[name])) for row in tables.at(point) if row[name]))
    return math.log1p(divisor / min(float(row[name]) for row in tables.chosen(point)))


def spread(values: NDArray[np.float64], grain: float) -> NDArray[np.float64]:
    """Equal values, spread over the interval between two evaluations."""
    result = []
    for value in np.unique(values.round(9)):
        count = int((values.round(9) == value).sum())
        result += [value + grain * ((number + 0.5) / count - 0.5) for number in range(count)]
    return np.asarray(result)


Fit = Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[float, NDArray[np.float64], float]]


def curve(tables: StudyTables, fit: Fit, *units: list[tuple[str, ...]]) -> Estimate | None:
    """The logarithm of the critical batch size of a series, or its difference from that of a second one; or the power
    by which its best rate grows."""
    of_units = [{int(row["seed"]) for point in unit for row in tables.at(point)} for unit in units]
    seeds = sorted(set.intersection(*of_units))
    middles, variances, free, bends, explained = [], [], [], [], 0.0
    for unit in units:
        sizes, columns = [], []
        for point in unit:
            fewest: dict[int, Row] = {}
            for row in tables.at(point):
                if row["steps_to_target"]:
                    before = fewest.setdefault(int(row["seed"]), row)
                    if float(row["steps_to_target"]) < float(before["steps_to_target"]):
                        fewest[int(row["seed"])] = row
            if all(seed in fewest for seed in seeds):
                sizes.append(float(dict(zip(tables.axes, point, strict=True))["data.batch_size"]))
                columns.append([math.log(figure_of(fewest[seed], fit)) for seed in seeds])
        if len(sizes) < 3 or len(seeds) < 3:
            return None
        steps = np.asarray(columns).T
        shape, residuals, information = fit(np.asarray(sizes), steps.mean(axis=0))
        each = [fit(np.asarray(sizes), row) for row in steps]
        rest = np.asarray([residual for _, residual, _ in each])
        middles.append(shape)
        free.append(len(sizes) - 2)
        variances.append(float((residuals**2).sum()) / free[-1] / information)
        bends.append([one for one, _, _ in each])
        chance = float(((rest - rest.mean(axis=0)) ** 2).sum()) / ((len(seeds) - 1) * free[-1])
        explained += chance / len(seeds) / information
    signs = [1.0, -1.0][: len(units)]
    ratios = sum(sign * np.asarray(each) for sign, each in zip(signs, bends, strict=True))
    excess = max(0.0, float(np.var(ratios, ddof=1)) / len(seeds) - explained)
    total = sum(variances) + excess
    squares = sum(each**2 / count for each, count in zip(variances, free, strict=True)) + excess**2 / (len(seeds) - 1)
    middle = sum(sign * each for sign, each in zip(signs, middles, strict=True))
    return Estimate(middle, math.sqrt(total), total**2 / squares)


def figure_of(row: Row, fit: Fit) -> float:
    """The steps of a trial, or its effective rate."""
    if fit is bend:
        return float(row["steps_to_target"])
    return float(row["optimizer.lr"]) / (1 - float(row.get("optimizer.momentum") or 0))


def power(sizes: NDArray[np.float64], logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], float]:
    """As `bend`, of a straight line through logarithms, by a polynomial fit."""
    at = np.log(sizes)
    slope, height = np.polyfit(at, logs, 1)
    return float(slope), logs - slope * at - height, float(len(at) * at.var())


def bend(sizes: NDArray[np.float64], logs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], float]:
    """By Levenberg-Marquardt from several beginnings: the logarithm of B_c, the residuals, and what the batch sizes
    know of it."""
    fits = [
        least_squares(
            lambda x: logs - x[0] - np.log1p(np.exp(x[1]) / sizes),
            [logs.min(), math.log(start)],
            xtol=1e-14,
            ftol=1e-14,
        )
        for start in (sizes[0], float(np.median(sizes)), sizes[-1])
    ]
    fit = min(fits, key=lambda each: each.cost)
    slopes = 1.0 / (1.0 + sizes / math.exp(fit.x[1]))
    return float(fit.x[1]), fit.fun, float(((slopes - slopes.mean()) ** 2).sum())


def decided(tables: StudyTables) -> list[tuple[str, list[tuple[float, float, float, float]]]]:
    """The answer to each claim, and p-values and interval at each of its points."""
    claims = tables.study["verdicts"]
    whole: list[tuple[float, float] | None] = []
    details: list[list[tuple[float, float, float, float]]] = []
    estimated = []
    for claim in claims:
        bound = claim["above"] if claim["above"] is not None else claim["below"]
        estimated.append(bound is None)
        places = list(comparisons(tables, claim))
        found = [at_a_place(claim, bound, [each for each in place if each]) for place in places if all(place)]
        details.append(found)
        few_days = claim["figure"] in OF_TIMES and tables.days < 3
        if bound is None or not found or few_days:  # no p-value of a day or two holds on others
            whole.append(None)
            continue
        holds = max(each[0] for each in found) if len(found) == len(places) else 1.0
        whole.append((holds, min(1.0, len(found) * min(each[1] for each in found))))
    # what chance does not move is decided, and no part of the family
    certain = [bool(found) and all(low == high for _, _, low, high in found) for found in details]
    # a claim and its opposite are one test
    tests = {
        (json.dumps([claim.get(key) for key in _ASKS]), claim["above"] or claim["below"], *sorted(pair)): pair
        for claim, pair, sure in zip(claims, whole, certain, strict=True)
        if pair is not None and not sure
    }
    p_values = sorted(min(1.0, 2 * min(pair)) for pair in tests.values())
    limit = max((p for rank, p in enumerate(p_values, 1) if p <= 0.1 * rank / len(p_values)), default=-1.0)
    answers = []
    for pair, without_bound, found, sure in zip(whole, estimated, details, certain, strict=True):
        if without_bound and found:
            answers.append("estimated")
        elif pair is None or min(1.0, 2 * min(pair)) > (0.1 if sure else limit):
            answers.append(OPEN)
        else:
            answers.append("holds" if pair[0] < pair[1] else "does not hold")
    return list(zip(answers, details, strict=True))


def at_a_place(claim: dict[str, Any], bound: float | None, known: list[Estimate]) -> tuple[float, float, float, float]:
    """The p-values of the claim and of its opposite, and the interval."""
    logs = bool(claim["over"]) or (not claim["minus"] and claim["figure"] not in AMOUNTS)
    at = 0.0 if bound is None else (math.log(bound) if logs else bound) if bound or not logs else -math.inf
    below = [1.0 - each.less_than(at) for each in known]
    above = [each.less_than(at) for each in known]
    count = len(known)
    if claim["figure"] in SMALLEST_IS_BEST:
        p_below, p_above = max(below), min(1.0, count * min(above))
        low, high = max(each.at(0.05 / count) for each in known), max(each.at(0.95) for each in known)
    else:
        p_below, p_above = min(1.0, count * min(below)), max(above)
        low, high = min(each.at(0.05) for each in known), min(each.at(1 - 0.05 / count) for each in known)
    holds, fails = (p_below, p_above) if claim["below"] is not None else (p_above, p_below)
    shown = math.exp if logs else float
    return holds, fails, shown(low), shown(high)


def differences(folder: Path) -> list[str]:
    """Where the kept answers of a report differ from the recomputed ones."""
    tables = StudyTables(folder)
    found = []
    for kept, (answer, places) in zip(tables.answers, decided(tables), strict=True):
        if kept["answer"] != answer:
            found.append(f"{tables.name}: {kept['claim']}: {kept['answer']} there, {answer} here")
        for one, (holds, fails, low, high) in zip(kept["compared"], places, strict=True):
            width = max(one["high"] - one["low"], 1e-9 * abs(one["high"]))
            away = max(abs(one["low"] - low), abs(one["high"] - high)) / width
            p_away = 0.0 if answer == "estimated" else max(abs(one["p_holds"] - holds), abs(one["p_fails"] - fails))
            if max(away, p_away) > TOLERANCE:
                there = f"{one['low']:.4g} to {one['high']:.4g}, p {one['p_holds']:.4g} there"
                here = f"{low:.4g} to {high:.4g}, p {holds:.4g} here"
                found.append(f"{tables.name}: {kept['claim']}: {there}, {here}")
    return found


def main() -> None:
    folders = sorted(path.parent for path in REPORTS.glob("*/verdicts.json"))
    answers = sum(len(StudyTables(folder).answers) for folder in folders)
    found = [line for folder in folders for line in differences(folder)]
    print(*found, f"{answers} verdicts recomputed, {len(found)} differ", sep="\n")  # noqa: T201
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
