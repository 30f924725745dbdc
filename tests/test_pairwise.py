"""Every pair is there, in few rows, the same every time."""

from __future__ import annotations

import itertools

from .pairwise import all_pairs


def test_every_pair_of_values_is_in_a_row() -> None:
    factors = ([[1, 2], [2, 1], [3]], "abcd", [True, False], range(5))
    rows = all_pairs(*factors)
    for one, other in itertools.combinations(range(len(factors)), 2):
        for pair in itertools.product(factors[one], factors[other]):
            assert any((row[one], row[other]) == pair for row in rows), pair
    assert len(rows) <= 25, "the two longest factors alone make 20 pairs, the grid has 120 rows"
    assert rows == all_pairs(*factors)
