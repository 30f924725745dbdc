"""The verdicts of a study: whether its figures bear out the claims that its spec names, and how sure that is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from alray.config.study.points import in_words, label_of
from alray.config.study.section import Verdict
from alray.core.metric import Metric
from alray.report.figure import Exhibit
from alray.report.table import CellValue, Column, Numbers
from alray.studies.batch_size import Regimes
from alray.studies.confidence import LEVEL
from alray.studies.doubt import Doubted, of_point, of_series
from alray.studies.records import Answer, Compared
from alray.studies.results import BATCH_SIZE, Results
from alray.studies.table import ROW_FIGURES, SCORES, PointRow

_SURE = 0.95
"""A claim holds, or does not hold, where at least this share of the draws says so."""
_OF_SERIES = {
    "largest_useful_batch_size": "useful",
    "perfect_scaling_up_to": "perfect",
    "plateau_from": "plateau",
}
"""Figures of all batch sizes of a series together: the fields of `Regimes`."""


def answers_of(results: Results) -> list[Answer]:
    """The answer to each claim of a study, in the order of its spec."""
    return [_answer(verdict, results) for verdict in results.study.verdicts]


def verdicts(answers: Sequence[Answer]) -> Exhibit | None:
    """The claims of the study, and whether they hold. A claim about several points holds if it holds at each of them.
    In brackets are the ends of 90 % intervals: over seeds by Student's t, from three seeds on; over the trials of a
    search by its smallest values (docs/studies.md). A claim is decided where at least 95 % of the draws from these
    distributions agree."""
    if not answers:
        return None
    rows: list[tuple[CellValue, ...]] = [
        (
            each.claim,
            each.answer,
            f"{each.figure}, {each.bound}",
            "; ".join(map(compared_text, each.compared)) or None,
            each.source,
        )
        for each in answers
    ]
    has_source = any(each.source for each in answers)
    numbers = Numbers(_COLUMNS, tuple(rows)) if has_source else Numbers(_COLUMNS[:-1], tuple(row[:-1] for row in rows))
    doubts = tuple(f"{each.claim}: {doubt}" for each in answers for doubt in each.doubts)
    return Exhibit("Verdicts", (), doubts, tables={"verdicts": numbers.texts})


_COLUMNS = (
    Column("claim", "claim"),
    Column("answer", "verdict"),
    Column("figure", "decided by"),
    Column("numbers", "numbers"),
    Column("source", "claimed by"),
)


def compared_text(each: Compared) -> str:
    """The numbers that decide a claim at one point: `pipeline.stages=2: 0.53 (0.51 to 0.55)`."""
    where = f"{each.point}: " if each.point else ""
    return f"{where}{_three_digits(each.value)} ({_range_text(each.low, each.high)})"


def _range_text(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "not known"
    if low is None:
        return f"{_three_digits(high)} or less"
    if high is None:
        return f"{_three_digits(low)} or more"
    return f"{_three_digits(low)} to {_three_digits(high)}"


def _three_digits(value: float | None) -> str:
    """A number with three digits, from 1,000 on a whole one: 0.0642, 128, 1,024."""
    if value is None:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _answer(verdict: Verdict, results: Results) -> Answer:
    bound = verdict.above if verdict.above is not None else verdict.below
    assert bound is not None, "a verdict has a bound"
    compared: list[Compared] = []
    doubts: list[str] = []
    places = 0
    refuted = False
    for place, left, right in _pairs(verdict, results):
        places += 1
        figure = _combined(verdict, left, right, results.metric)
        doubts += [f"{place}: {reason}" if place else reason for reason in figure.reasons]
        if figure.draws is not None:
            least, most = figure.ends or (figure.draws, figure.draws)
            true, possible = (
                (least > bound, most > bound) if verdict.above is not None else (most < bound, least < bound)
            )
            middle, low, high = (
                _quantile(draws, share)
                for draws, share in ((figure.draws, 0.5), (least, (1 - LEVEL) / 2), (most, (1 + LEVEL) / 2))
            )
            compared.append(Compared(point=place, value=middle, low=low, high=high, share=float(np.mean(true))))
            refuted = refuted or float(np.mean(possible)) <= 1.0 - _SURE
    if not places:
        doubts.append("the study has no results for it")
    answer: Literal["holds", "does not hold", "not decided by this study"] = "not decided by this study"
    if refuted:
        answer = "does not hold"
    elif compared and len(compared) == places and all(each.share >= _SURE for each in compared):
        answer = "holds"
    return Answer(
        claim=verdict.claim,
        source=verdict.source,
        figure=_decided_by(verdict),
        bound=f"{'above' if verdict.above is not None else 'below'} {bound:g}",
        answer=answer,
        compared=compared,
        doubts=list(dict.fromkeys(doubts)),
    )


def _quantile(draws: NDArray[np.float64], share: float) -> float | None:
    """The value that this share of the draws does not exceed; None if it is infinite. Between infinities is no mean."""
    found = float(np.quantile(draws, share, method="inverted_cdf"))
    return found if math.isfinite(found) else None


def _decided_by(verdict: Verdict) -> str:
    """The figure in words: `step time of al_streamed over that of bp_gpipe`."""
    of = f" of {label_of(verdict.of)}" if verdict.of else ""
    known = ROW_FIGURES.get(verdict.figure)
    words = f"{in_words(verdict.figure) if known is None else known[0].title}{of}"
    others = verdict.over or verdict.minus
    if not others:
        return words
    listed = " or ".join(label_of(each) for each in others)
    best = f"the best of {listed}" if len(others) > 1 else listed
    return f"{words}, {'divided by' if verdict.over else 'minus'} that of {best}"


def _combined(verdict: Verdict, left: Doubted, right: Sequence[Doubted], metric: Metric) -> Doubted:
    """The figure that decides: the one that is named, its ratio to the best of others, or its difference from it."""
    reasons = tuple(reason for each in (left, *right) for reason in each.reasons)
    others = [each.draws for each in right if each.draws is not None]
    if left.draws is None or len(others) < len(right):
        return Doubted(None, reasons)
    if not others:
        return Doubted(left.draws, reasons, left.ends)
    smaller = verdict.figure in ROW_FIGURES and ROW_FIGURES[verdict.figure][0].best == "smallest"
    if verdict.figure in SCORES:
        smaller = metric.lowest
    best = (np.minimum if smaller else np.maximum).reduce
    combine = np.divide if verdict.over else np.subtract
    least, most = (best([each.ends[end] for each in right if each.ends] or others) for end in (0, 1))
    with np.errstate(invalid="ignore"):  # of two plateaus that do not begin
        draws = combine(left.draws, best(others))
    if left.ends is None:
        return Doubted(draws, reasons)
    return Doubted(draws, reasons, (combine(left.ends[0], most), combine(left.ends[1], least)))


_Known = list[tuple[Mapping[str, Any], Callable[[], Doubted]]]
"""Values of axes, and the figure that there is at them."""


def _pairs(verdict: Verdict, results: Results) -> Iterator[tuple[str, Doubted, list[Doubted]]]:
    """Every point that a claim is about, with those that it is compared with: on the axes that the claim does not name,
    they have the same values."""
    known = _series(results, verdict.figure) if verdict.figure in _OF_SERIES else _points(results, verdict.figure)
    others = verdict.over or verdict.minus
    named = {axis for selector in (verdict.of, *others) for axis in selector}
    for point, figure in known:
        if not _matches(point, verdict.of):
            continue
        rest = {axis: value for axis, value in point.items() if axis not in named}
        wanted = [{**rest, **selector} for selector in others]
        compared = [other() for selector in wanted for at, other in known if _matches(at, selector)]
        if others and not compared:
            yield label_of(rest), Doubted(None, ("the study has nothing to compare it with",)), []
        else:
            yield label_of(rest), figure(), compared


def _matches(point: Mapping[str, Any], selector: Mapping[str, Any]) -> bool:
    return all(axis in point and json.dumps(point[axis]) == json.dumps(value) for axis, value in selector.items())


def _points(results: Results, figure: str) -> _Known:
    return [(row.point, partial(of_point, results, row, figure)) for row in results.rows]


def _series(results: Results, figure: str) -> _Known:
    """The series of batch sizes by their other axes; a study without batch sizes has none."""
    if not results.is_of_batch_sizes:
        return []
    return [
        (
            {axis: value for axis, value in rows[0].point.items() if axis != BATCH_SIZE},
            partial(_of_series, results, rows, figure),
        )
        for rows in results.along(BATCH_SIZE).values()
    ]


def _of_series(results: Results, rows: Sequence[PointRow], figure: str) -> Doubted:
    found, reasons = of_series(results, rows)
    if not found:
        return Doubted(None, (*reasons, "fewer than two batch sizes reached the target"))
    least, most = zip(*(_ends(each, figure) for each in found), strict=True)
    if any(low != high for low, high in zip(least, most, strict=True)):
        largest = max(each.largest for each in found)
        reasons = (*reasons, f"it may lie above {largest:,}, the largest batch size that reached the target")
    values = [math.inf if (value := getattr(each, _OF_SERIES[figure])) is None else float(value) for each in found]
    return Doubted(np.asarray(values), reasons, (np.asarray(least), np.asarray(most)))


def _ends(found: Regimes, figure: str) -> tuple[float, float]:
    """The least and the most that a figure of a series can be. Beyond the largest batch size nothing is known."""
    value: int | None = getattr(found, _OF_SERIES[figure])
    if value is None:
        return float(found.largest), math.inf
    is_least = {"useful": found.useful_at_least, "perfect": found.perfect_at_least}
    return float(value), math.inf if is_least.get(_OF_SERIES[figure], False) else float(value)
