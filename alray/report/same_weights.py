"""Curves of networks that ended in the same weights: where their values are equal as well, one curve stands for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from alray.config.sections.section import listed
from alray.report.drawing import series_of
from alray.report.figure import Series

Weights = tuple[tuple[int, str], ...]
"""Seeds with the hashes of their final weights."""


class Merged(NamedTuple):
    """The curves that are left.

    Attributes:
        notes: which curves stand for several series, in sentences.
    """

    rows: list[dict[str, Any]]
    series: tuple[Series, ...]
    notes: tuple[str, ...]


def merged(
    rows: Sequence[dict[str, Any]],
    weights: Mapping[str, Weights | None],
    fields: Sequence[str],
    series: Sequence[Series] = (),
) -> Merged:
    """One curve for all series with the same weights and the same values. The first of them gives it its colour.

    Args:
        rows: each with the label of its `series`.
        weights: label -> the weights of the points of a series; None: not known.
        fields: of the rows, in which curves must agree. Others, such as times, are those of the first series.
        series: as those of `Curves`.
    """
    series = series or series_of(rows)
    by_label: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_label.setdefault(row["series"], []).append(row)
    alike: dict[Any, list[str]] = {}
    for each in series:
        values = tuple(tuple(row.get(field) for field in fields) for row in by_label.get(each.label, ()))
        known = weights.get(each.label)
        alike.setdefault((each.label,) if known is None else (known, values), []).append(each.label)
    names = {first: _name(first, others) for first, *others in alike.values()}
    return Merged(
        [{**row, "series": names[row["series"]]} for row in rows if row["series"] in names],
        tuple(Series(names[each.label], each.colour) for each in series if each.label in names),
        tuple(
            f"The curve `{names[labels[0]]}` is that of {listed(labels, 'and')}, which end in the same weights."
            for labels in alike.values()
            if len(labels) > 1
        ),
    )


def _name(first: str, others: Sequence[str]) -> str:
    return f"{first} (and {len(others)} of equal weights)" if others else first
