"""The verdicts of a study: whether its figures bear out the claims that its spec names, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from alray.config.study.points import in_words, label_of, same_value
from alray.config.study.section import BATCH_SIZE, SCORES, Verdict
from alray.core.metric import Metric
from alray.report.figure import Exhibit
from alray.report.table import CellValue, Column, Numbers
from alray.studies.confidence import LEVEL, Sampled, Student, discoveries
from alray.studies.doubt import COUNTED, Doubted, Way, of_growth, of_point, of_series, of_two
from alray.studies.records import ESTIMATED, UNDECIDED, Answer, Compared
from alray.studies.results import Results
from alray.studies.table import ROW_FIGURES, TIMES, PointRow


def answers_of(results: Results) -> list[Answer]:
    """The answer to each claim of a study, in the order of its spec."""
    return decided([_answer(verdict, results) for verdict in results.study.verdicts])


def decided(answers: Sequence[Answer]) -> list[Answer]:
    """The answers of one page, decided together: as many claims are decided as a false discovery rate allows
    (`confidence.discoveries`). Those without a bound, those without any figure, and those about times of few
    days, whose p-values say nothing of other days, are none of them. Nor are figures that no chance moves, such as a
    number of parameters: they are decided, and would only allow others a larger p-value. So would one test that is
    counted twice, as that of a claim and its opposite."""
    bounded = [at for at, each in enumerate(answers) if each.compared and each.bound and not each.few_days]
    tests = {at: _test(answers[at]) for at in bounded if any(each.low < each.high for each in answers[at].compared)}
    p_values = {test: answers[at].p for at, test in tests.items()}
    discovered = dict(zip(p_values, discoveries(list(p_values.values())), strict=True))
    flags = {at: answers[at].p < 1.0 - LEVEL for at in bounded}
    flags |= {at: discovered[test] for at, test in tests.items()}
    return [
        each
        if each.answer == ESTIMATED
        else each.model_copy(update={"answer": _words(each) if flags.get(at) else UNDECIDED})
        for at, each in enumerate(answers)
    ]


def _test(answer: Answer) -> tuple[object, ...]:
    """Equal for claims that one test decides: about one figure and one bound, from whichever side."""
    numbers = tuple((each.point, each.value, each.low, each.high) for each in answer.compared)
    return answer.figure, answer.bound.partition(" ")[2], numbers, frozenset((answer.p_holds, answer.p_fails))


def _words(answer: Answer) -> Literal["holds", "does not hold"]:
    return "holds" if answer.p_holds < answer.p_fails else "does not hold"


def verdicts(answers: Sequence[Answer]) -> Exhibit | None:
    """The claims of the study, and whether they hold. A claim about several points holds if it holds at each of them.
    In brackets are the ends of 90 % intervals by Student's t, over what the column "over" names: points are compared
    seed by seed or day by day, from three on. Those of critical batch sizes follow from the curve through all batch
    sizes (docs/studies.md). The p-value is two-sided. All claims together, but for those about times of few days, have
    a false discovery rate (Benjamini & Hochberg 1995), by which one decided claim in twenty is expected to be decided
    in the wrong direction. Another day may measure other times, so an interval over starts in fewer than three days
    decides nothing. An estimate contains or excludes a published value if its interval does."""
    if not answers:
        return None
    rows: list[tuple[CellValue, ...]] = [
        (
            each.claim,
            each.says_in_full,
            f"{each.figure}, {each.bound}" if each.bound else each.figure,
            "; ".join(map(compared_text, each.compared)) or None,
            each.units or None,
            p_text(each) or None,
            each.source,
        )
        for each in answers
    ]
    shown = [at for at, column in enumerate(_COLUMNS) if column.name != "source" or any(row[at] for row in rows)]
    numbers = Numbers(tuple(_COLUMNS[at] for at in shown), tuple(tuple(row[at] for at in shown) for row in rows))
    doubts = tuple(f"{each.claim}: {doubt}" for each in answers for doubt in each.doubts)
    return Exhibit("Verdicts", (), doubts, tables={"verdicts": numbers.texts})


_COLUMNS = (
    Column("claim", "claim"),
    Column("answer", "verdict"),
    Column("figure", "decided by"),
    Column("numbers", "numbers"),
    Column("over", "over"),
    Column("p", "p-value"),
    Column("source", "claimed by"),
)
_NOISE = 1e-9
"""Of the way from 0 to either end of an interval around it: a value nearer to 0 is a rounding error of sums."""
_NOTHING = "the study has nothing to compare it with"
_NO_TRIAL = "no trial has ended at a point that it is about"


def p_text(answer: Answer) -> str:
    """The two-sided p-value: `0.032`, or `< 0.001`; empty where there is none, or none that holds on other days."""
    if not answer.compared or not answer.bound or answer.few_days:
        return ""
    return "< 0.001" if answer.p < 0.001 else f"{answer.p:.2g}"


def compared_text(each: Compared) -> str:
    """The numbers that decide a claim at one point: `pipeline.stages=2: 0.53 (0.51 to 0.55)`."""
    where = f"{each.point}: " if each.point else ""
    value = 0.0 if abs(each.value) < _NOISE * min(-each.low, each.high) else each.value
    return f"{where}{_three_digits(value)} ({_three_digits(each.low)} to {_three_digits(each.high)})"


def _three_digits(value: float) -> str:
    """A number with three digits, from 1,000 on a whole one: 0.0642, 128, 1,024. A ratio near 1 has four, which say on
    which side of it: 1.003."""
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    digits = f"{value:.3g}"
    return f"{value:.4g}" if digits == "1" else digits


def _answer(verdict: Verdict, results: Results) -> Answer:
    """The answer to a claim, before it is decided."""
    bound = verdict.above if verdict.above is not None else verdict.below
    places = list(_places(verdict, results))
    compared: list[Compared] = []
    doubts: list[str] = [] if places else ["the study has no results for it"]
    reasons = [[reason for figure in figures for reason in figure.reasons] for _, figures in places]
    everywhere = set.intersection(*map(set, reasons)) if len(reasons) > 1 else set()
    for (place, figures), of_place in zip(places, reasons, strict=True):
        doubts += [reason if reason in everywhere or not place else f"{place}: {reason}" for reason in of_place]
        if figures and all(figure.confidence is not None for figure in figures):
            compared.append(_at_a_place(verdict, place, figures, bound, results.metric))
    complete = bool(compared) and len(compared) == len(places)
    return Answer(
        claim=verdict.claim,
        source=verdict.claimed_by,
        figure=_decided_by(verdict),
        bound="" if bound is None else f"{'above' if verdict.above is not None else 'below'} {bound:g}",
        answer=ESTIMATED if bound is None and complete else UNDECIDED,
        compared=compared,
        doubts=list(dict.fromkeys([*doubts, *results.study.doubts])),
        p_holds=max(each.p_holds for each in compared) if complete else 1.0,
        p_fails=min(1.0, len(compared) * min(each.p_fails for each in compared)) if compared else 1.0,
        units=_units([each.units for _, figures in places for each in figures if each.confidence is not None]),
        few_days=verdict.figure in TIMES and results.unit_of_times != "day",
        published=verdict.published,
    )


def _units(of_figures: Sequence[str]) -> str:
    """How many seeds, days, starts or runs figures come from, in words; where these differ, the fewest and the most."""
    found = sorted(set(of_figures), key=lambda units: int(units.partition(" ")[0].replace(",", "")))
    return " to ".join([*(units.partition(" ")[0] for units in found[:-1][:1]), *found[-1:]])


def _at_a_place(
    verdict: Verdict, place: str, figures: Sequence[Doubted], bound: float | None, metric: Metric
) -> Compared:
    """The claim at one point.

    Beside the best of several others, the ratio or difference is the largest (or smallest) of those to each of them. So
    it lies below a bound if all do, which holds by the largest of their p-values, and above it if one does, which holds
    by the smallest one times their number (Bonferroni). The ends of the interval follow from the same two.
    """
    scale, known = figures[0], [figure.confidence for figure in figures if figure.confidence is not None]
    at, count, tail = scale.scaled(bound) if bound is not None else 0.0, len(known), (1.0 - LEVEL) / 2.0
    # The p-values of: the figure lies below the bound, and above it.
    p_below, p_above = [1.0 - each.below(at) for each in known], [each.below(at) for each in known]
    if _smallest_is_best(verdict, metric):
        joint, low_tail, high_tail = max, tail / count, tail
        below, above = max(p_below), min(1.0, count * min(p_above))
    else:
        joint, low_tail, high_tail = min, tail, tail / count
        below, above = min(1.0, count * min(p_below)), max(p_above)
    return Compared(
        point=place,
        value=scale.shown(joint(each.middle for each in known)),
        low=scale.shown(joint(each.at(low_tail) for each in known)),
        high=scale.shown(joint(each.at(1.0 - high_tail) for each in known)),
        p_holds=1.0 if bound is None else below if verdict.below is not None else above,
        p_fails=1.0 if bound is None else above if verdict.below is not None else below,
    )


def _smallest_is_best(verdict: Verdict, metric: Metric) -> bool:
    if verdict.figure in SCORES:
        return metric.lowest
    return verdict.figure in ROW_FIGURES and verdict.figure != "samples_per_s"


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
    beyond = f", minus the same at {label_of(verdict.than)}" if verdict.than else ""
    return f"{words}, {'divided by' if verdict.over else 'minus'} that of {best}{beyond}"


def _places(verdict: Verdict, results: Results) -> Iterator[tuple[str, list[Doubted]]]:
    """Every point that a claim is about, with the figure there, or its ratio to or difference from each of those that
    it is compared with: on the axes that the claim does not name, they have the same values."""
    known = _series(results) if verdict.is_of_series else _points(results)
    others = verdict.over or verdict.minus
    named = {axis for selector in (verdict.of, *others, verdict.than) for axis in selector}
    for point, rows in known:
        if not _matches(point, verdict.of):
            continue
        place = label_of({axis: value for axis, value in point.items() if axis not in verdict.of})
        rest = {axis: value for axis, value in point.items() if axis not in named}
        beside = [(at, each) for selector in others for at, each in known if _matches(at, {**rest, **selector})]
        compared = [each for at, each in beside if at != point]
        if beside and not compared:
            continue  # it is all that others are compared with
        if others and not compared:
            yield place, [Doubted(None, False, (_NOTHING,))]
        elif not all((rows, *compared)):
            yield place, [Doubted(None, False, (_NO_TRIAL,))]
        elif verdict.figure == "growth_of_best_rate":
            yield place, [of_growth(results, rows)]
        elif verdict.is_of_series:
            yield place, [of_series(results, rows, *compared)]
        elif others:
            way: Way = "ratio" if verdict.over else "difference"
            yield place, [_of_pair(results, verdict, (rows[0], each[0]), way) for each in compared]
        else:
            yield (
                place,
                [_sampled(results, verdict, of_point(results, rows[0], verdict.figure, verdict.samples), rows[:1])],
            )


def _of_pair(results: Results, verdict: Verdict, pair: tuple[PointRow, PointRow], way: Way) -> Doubted:
    """How two points differ, or how much more than they do at the values `than`."""
    wanted = [{**row.point, **verdict.than} for row in pair] if verdict.than else []
    than = [row for point in wanted for row in results.rows if _matches(row.point, point)]
    if len(than) < len(wanted):
        return Doubted(None, False, (_NOTHING,))
    found = of_two(results, verdict.figure, *pair, way, than, verdict.samples)
    return _sampled(results, verdict, found, (*pair, *than))


def _sampled(results: Results, verdict: Verdict, found: Doubted, rows: Sequence[PointRow]) -> Doubted:
    """An accuracy, or a difference of two, with the sampling error of the set that it is measured on.

    The variance of an accuracy p on n samples is p (1 - p) / n. Where all are right, or none, p is taken as
    (n + 1) / (n + 2), by Laplace's rule of succession. The variance of a difference is at most the sum of both, where
    networks that fail on the same samples fail together more often than by chance.
    """
    if verdict.samples is None or not isinstance(found.confidence, Student):
        return found
    if results.metric.name not in COUNTED:
        reason = f"`samples` is about a share of right answers, which {results.metric.title} is not"
        return replace(found, confidence=None, reasons=(*found.reasons, reason))
    shares = [spread.mean for row in rows if (spread := row.figures[verdict.figure]) is not None]
    least = (verdict.samples + 1) / (verdict.samples + 2) ** 2
    variance = sum(max(share * (1.0 - share), least) for share in shares) / verdict.samples
    return replace(found, confidence=Sampled(found.confidence, variance))


def _matches(point: Mapping[str, Any], selector: Mapping[str, Any]) -> bool:
    return all(axis in point and same_value(point[axis], value) for axis, value in selector.items())


def _points(results: Results) -> list[tuple[Mapping[str, Any], list[PointRow]]]:
    """Every point with its row; none where no trial has ended."""
    return [*((row.point, [row]) for row in results.rows), *((point, []) for point in results.unmeasured)]


def _series(results: Results) -> list[tuple[Mapping[str, Any], list[PointRow]]]:
    """The series of batch sizes by their other axes, and their rows; none where one of its points has none. A study
    without batch sizes has no series."""
    if not results.is_of_batch_sizes:
        return []
    found: dict[str, tuple[Mapping[str, Any], list[PointRow]]] = {}
    unmeasured: list[tuple[Mapping[str, Any], list[PointRow]]] = [(point, []) for point in results.unmeasured]
    for point, rows in (*unmeasured, *((rows[0].point, rows) for rows in results.along(BATCH_SIZE).values())):
        others = {axis: value for axis, value in point.items() if axis != BATCH_SIZE}
        found.setdefault(label_of(others), (others, rows))
    return list(found.values())
