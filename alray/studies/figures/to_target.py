"""Figures of studies of batch sizes with a target: the way to it, and the best settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from alray.config.study.points import in_words, label_of, value_text
from alray.config.study.section import BATCH_SIZE
from alray.report.drawing import BEYOND, IDEAL, MEASURED, Curves, Scale, colours_of, error_bar
from alray.report.figure import Exhibit
from alray.report.same_weights import merged
from alray.report.table import CellValue, Column, Numbers, Table
from alray.studies.doubt import Doubted, interval_of_point, not_bracketed, of_series
from alray.studies.figures.trouble import doubts_of
from alray.studies.records import TrialRecord
from alray.studies.results import Results
from alray.studies.table import PointRow, settings_text, weights_along

_ALL, _SOME = "reached", "not reached by every seed"
_TELLS = {
    "series": "series",
    "reached": "seeds that reached it",
    "trials": "trials",
    "settings": "best settings",
    "doubts": "doubts",
}


def steps_to_target(results: Results) -> Exhibit | None:
    """How many mini-batches the best settings of each batch size take to reach the target on validation (Shallue et al.
    2019, JMLR 20(112), section 4.1). The dotted line is perfect scaling from the smallest batch size. The critical
    batch size B_c, with its 90 % interval (docs/studies.md), is that of the curve S_min (1 + B_c / B) through the
    fewest steps of every seed: the steps at B_c are twice the fewest.
    An open triangle stands at the budget of a batch size whose trials never reached the target. Where only some
    seeds reached it, the mean is over these, and its mark says so. A bar is the 90 % interval of what the best settings
    there are need, which may be less than the best ones tried needed; without a search, of the mean over seeds."""
    if not results.is_of_batch_sizes:
        return None
    along = results.along(BATCH_SIZE)
    rows = [row for label, each in along.items() for row in _way(results, label, each)]
    weights = {label: weights_along(each) for label, each in along.items()}
    fields = ("kind", "mark", "batch_size", "steps", "low", "high")
    rows, series, notes = merged(rows, weights, fields, colours_of(list(along)))
    curves = Curves(
        Scale("batch_size", "batch size", base=2, ticks=results.values(BATCH_SIZE)),
        Scale("steps", "mini-batches to the target", base=2),
        series,
        kinds=(MEASURED, IDEAL),
        marks=tuple(mark for mark in (_ALL, _SOME, BEYOND) if any(row.get("mark") == mark for row in rows)),
        tells=_TELLS,
    )
    critical = {label: of_series(results, each) for label, each in along.items()}
    conclusions = tuple(_conclusion(label, each, critical[label]) for label, each in along.items())
    if results.study.search is not None:
        conclusions += tuple(_rises(label, each) for label, each in along.items() if _rising(each))
    conclusions += notes
    what = "Mini-batches to the target against batch size, both on scales of powers of two, with the line of perfect "
    what += f"scaling. {' '.join(conclusions)}"
    figure = curves.figure("steps_to_target", "Mini-batches to the target", rows, what)
    return Exhibit("Steps to the target", (figure,), conclusions, tables={"batch_sizes": _table(along, critical)})


def best_settings(results: Results) -> Exhibit | None:
    """The settings that reach the target first at each batch size, and the effective learning rate lr / (1 - momentum)
    (Shallue et al. 2019, section 4.7). A square marks a value that is not bracketed: the smallest or the largest that
    was tried, or one within 5 % of an end of the range that was searched, on the scale of the distribution."""
    if not results.is_of_batch_sizes or results.study.search is None:
        return None
    loose = {(label_of(row.point), key) for row, key, _ in not_bracketed(results, results.rows)}
    along = {label: [row for row in rows if row.reached] for label, rows in results.along(BATCH_SIZE).items()}
    figures = []
    for quantity in _quantities(results):
        rows = [row for label, each in along.items() for row in _best(label, each, quantity, loose)]
        if not rows:
            continue
        curves = Curves(
            Scale("batch_size", "batch size", base=2, ticks=results.values(BATCH_SIZE)),
            Scale("value", quantity.title, base=quantity.base),
            colours_of(list(along)),
            marks=("bracketed", "not bracketed"),
            tells=_TELLS,
        )
        file = "best_" + quantity.key.removeprefix("optimizer.").replace(".", "_")
        what = f"The best {quantity.title} against batch size."
        figures.append(curves.figure(file, f"Best {quantity.title}", rows, what))
    return Exhibit("Best settings", tuple(figures)) if figures else None


def _way(results: Results, label: str, rows: Sequence[PointRow]) -> Iterator[dict[str, Any]]:
    """The way to the target at each batch size of a series, and the line of perfect scaling."""
    steps = _reached_steps(rows)
    for row in rows:
        size, spread = row.point[BATCH_SIZE], row.figures["steps_to_target"]
        if spread is None and row.steps is None:
            continue
        yield {
            "series": label,
            "kind": MEASURED,
            "mark": BEYOND if spread is None else _SOME if spread.missing else _ALL,
            "batch_size": size,
            "steps": row.steps if spread is None else spread.mean,
            **(error_bar(interval_of_point(results, row, "steps_to_target")) if spread is not None else {}),
            "doubts": doubts_of(results, row, "steps_to_target"),
            **_of(row),
        }
    if steps:
        first = min(steps)
        for row in rows:
            size = row.point[BATCH_SIZE]
            if size >= first:
                yield {"series": label, "kind": IDEAL, "batch_size": size, "steps": steps[first] * first / size}


def _of(row: PointRow) -> dict[str, Any]:
    """Return the values of a point that describe its trials."""
    return {
        "reached": f"{row.reached} of {row.tried}",
        "trials": row.trials,
        "settings": settings_text(row.settings),
    }


def _reached_steps(rows: Sequence[PointRow]) -> dict[int, float]:
    """Batch size -> mini-batches to the target, of the batch sizes that reached it."""
    found = {row.point[BATCH_SIZE]: row.figures["steps_to_target"] for row in rows}
    return {size: spread.mean for size, spread in found.items() if spread is not None}


def _missed(rows: Sequence[PointRow]) -> list[int]:
    """The batch sizes that never reached the target."""
    return [row.point[BATCH_SIZE] for row in rows if row.figures["steps_to_target"] is None]


def _rising(rows: Sequence[PointRow]) -> list[int]:
    """Batch sizes that take more mini-batches to the target than a smaller one."""
    steps = _reached_steps(rows)
    sizes = sorted(steps)
    return [size for number, size in enumerate(sizes) if any(steps[each] < steps[size] for each in sizes[:number])]


def _rises(label: str, rows: Sequence[PointRow]) -> str:
    """With the best settings, more samples in a mini-batch need no more mini-batches (Shallue et al. 2019, section
    4.1): a search that shows it missed them."""
    return (
        f"{label}: the search is too small, because {_listed(_rising(rows))} took more mini-batches than a smaller "
        "batch size."
    )


def _conclusion(label: str, rows: Sequence[PointRow], critical: Doubted) -> str:
    """A sentence about a series of batch sizes."""
    missed = _missed(rows)
    never = [f"{_listed(missed)} never reached the target"] if missed else []
    some = [
        f"{row.point[BATCH_SIZE]:,} reached it on {row.reached} of {row.tried} seeds"
        for row in rows
        if 0 < row.reached < row.tried
    ]
    if critical.confidence is None or critical.interval is None:
        size = f"the critical batch size is not known, for {critical.reasons[-1]}"
    else:
        middle = critical.shown(critical.confidence.middle)
        size = (
            f"the critical batch size is {middle:,.0f} ({critical.interval.low:,.0f} to {critical.interval.high:,.0f})"
        )
    return f"{label}: {'; '.join([size, *never, *some])}."


def _listed(sizes: Iterable[int]) -> str:
    *others, last = (f"{size:,}" for size in sizes)
    return f"{', '.join(others)} and {last}" if others else last


def _table(along: dict[str, list[PointRow]], critical: dict[str, Doubted]) -> Table:
    axes = [axis for axis in next(iter(along.values()))[0].point if axis != BATCH_SIZE]
    columns = [Column(axis, in_words(axis), kind="setting") for axis in axes] or [Column("series", "series")]
    rows: list[tuple[CellValue, ...]] = []
    for label, each in along.items():
        of_it = critical[label]
        bend: tuple[int | None, ...] = (None,) * 3
        if of_it.confidence is not None and of_it.interval is not None:
            bend = tuple(map(round, (of_it.shown(of_it.confidence.middle), *of_it.interval)))
        named = [value_text(each[0].point[axis]) for axis in axes] or [label]
        missed = " ".join(map(str, _missed(each))) or None
        some = " ".join(str(row.point[BATCH_SIZE]) for row in each if 0 < row.reached < row.tried) or None
        rows.append((*named, *bend, missed, some))
    return Numbers((*columns, *_OF_SIZES), tuple(rows)).texts


_OF_SIZES = (
    Column("critical", "critical batch size", kind="setting"),
    Column("critical_low", "at least", kind="setting"),
    Column("critical_high", "at most", kind="setting"),
    Column("never_reached", "never reached at"),
    Column("reached_by_some", "not reached by every seed at"),
)


class _Quantity(NamedTuple):
    """The quantity that is drawn.

    Attributes:
        base: of the logarithm on its axis.
    """

    key: str
    title: str
    base: int
    value: Callable[[TrialRecord], float | None]


def _quantities(results: Results) -> Iterator[_Quantity]:
    """The settings of the search that are numbers, and the effective rate where there is momentum."""
    search = results.study.search
    assert search is not None
    space = {key: each for row in results.rows for key, each in search.space_at(row.point).items()}
    for key, distribution in space.items():
        if distribution.choice is not None or key == BATCH_SIZE:
            continue
        if distribution.one_minus_loguniform is not None:
            yield _Quantity(key, f"1 - {in_words(key)}", 10, partial(_one_minus, key))
        else:
            base = 0 if distribution.loguniform is None else 10
            yield _Quantity(key, in_words(key), base, partial(_drawn, key))
    if any(results.momentum(record) for record in results.records):
        yield _Quantity("effective_rate", "effective learning rate", 10, partial(_effective_rate, results))


def _drawn(key: str, record: TrialRecord) -> float | None:
    """None where the variant of a trial does not search this key."""
    return float(record.values[key]) if key in record.values else None


def _one_minus(key: str, record: TrialRecord) -> float | None:
    return 1.0 - float(record.values[key]) if key in record.values else None


def _effective_rate(results: Results, record: TrialRecord) -> float | None:
    rate, momentum = results.setting(record, "optimizer.lr"), results.momentum(record)
    return None if rate is None or momentum is None else float(rate) / (1.0 - momentum)


def _best(
    label: str, rows: Sequence[PointRow], quantity: _Quantity, loose: set[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    """The best value at each batch size of a series.

    Args:
        loose: point and key of the values that are not bracketed.
    """
    for row in rows:
        found = quantity.value(row.best[0])
        if found is not None:
            yield {
                "series": label,
                "kind": MEASURED,
                "mark": "not bracketed" if (label_of(row.point), quantity.key) in loose else "bracketed",
                "batch_size": row.point[BATCH_SIZE],
                "value": found,
                **_of(row),
            }
