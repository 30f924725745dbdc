"""Which part of a grid `make test` takes.

Rows that hold every pair of values of any two factors: far fewer than the whole grid, and nearly as telling.

Most faults need two values at once (a partition and a schedule, a schedule and a method), few need three.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

Row = tuple[Any, ...]


def all_pairs(*factors: Sequence[Any]) -> list[Row]:
    """Rows of one value from each factor, such that every pair of values of two factors is in a row.

    Greedy and deterministic: each row begins with the first pair that no row holds yet, and takes for every other
    factor the value that adds most new pairs. Values are told apart by their place, so they need not be hashable.
    """
    missing = {
        (one, a, other, b)
        for one, other in itertools.combinations(range(len(factors)), 2)
        for a, b in itertools.product(range(len(factors[one])), range(len(factors[other])))
    }
    rows: list[Row] = []
    while missing:
        one, a, other, b = min(missing)
        chosen = {one: a, other: b}
        for factor, values in enumerate(factors):
            if factor not in chosen:
                gains = [len(_pairs(chosen | {factor: value}) & missing) for value in range(len(values))]
                chosen[factor] = gains.index(max(gains))
        missing -= _pairs(chosen)
        rows.append(tuple(values[chosen[factor]] for factor, values in enumerate(factors)))
    return rows


def _pairs(chosen: dict[int, int]) -> set[tuple[int, int, int, int]]:
    return {(one, a, other, b) for (one, a), (other, b) in itertools.combinations(sorted(chosen.items()), 2)}


def first_alone(values: Iterable[Any], *, first: int = 1) -> list[Any]:
    """Parameters of a test, of which all but the first ones are marked `full`: for values that share their code."""
    listed = list(values)
    return [*listed[:first], *(pytest.param(value, marks=pytest.mark.full) for value in listed[first:])]
