"""Shares of a mini-batch: by hand, against every other choice, and by what must hold for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alray.core.errors import PlanError
from alray.planning.prediction.shares import (
    first_shares,
    ideal_shares,
    integer_shares,
    rows_of,
    shares_of_part,
)

IDEAL = st.floats(-5, 40, allow_nan=False)
SECONDS = st.floats(1e-6, 1e4)


@st.composite
def some_shares(draw: st.DrawFn, most: int = 200) -> list[int]:
    return draw(st.lists(st.integers(1, most), min_size=1, max_size=8))


def every_choice(count: int, batch_size: int) -> Iterator[tuple[int, ...]]:
    if count == 1:
        yield (batch_size,)
        return
    for first in range(1, batch_size - count + 2):
        for rest in every_choice(count - 1, batch_size - first):
            yield (first, *rest)


def balanced(shares: Sequence[int], compute_s: Sequence[float | None], batch_size: int) -> tuple[int, ...]:
    return integer_shares(ideal_shares(shares, compute_s, batch_size), batch_size)


def cost(shares: tuple[int, ...], ideal: list[float]) -> float:
    return sum((share - wanted) ** 2 for share, wanted in zip(shares, ideal, strict=True))


def test_the_example_of_the_paper() -> None:
    assert integer_shares([13.7, 16.5, 19.6, 14.2], 64) == (14, 16, 20, 14)


@pytest.mark.parametrize(
    ("ideal", "batch_size", "shares"),
    [
        ([1.5, 1.5], 3, (2, 1)),  # a tie goes to the lower rank
        ([0.1, 63.9], 64, (1, 63)),
        ([0.1, 0.1, 9.8], 10, (1, 1, 8)),  # none falls to zero, and the sum does not shrink
        ([0.0, 0.0, 3.0], 3, (1, 1, 1)),
        ([2.4, 2.4, 2.4, 0.8], 8, (3, 2, 2, 1)),
    ],
)
def test_integers_by_hand(ideal: list[float], batch_size: int, shares: tuple[int, ...]) -> None:
    assert integer_shares(ideal, batch_size) == shares


@given(st.lists(IDEAL, min_size=1, max_size=4), st.integers(0, 9), st.integers(1, 2))
def test_no_choice_is_nearer(ideal: list[float], over: int, least: int) -> None:
    """Whatever the ideal shares are, even where they do not add up to the mini-batch."""
    batch_size = len(ideal) * least + over
    shares = integer_shares(ideal, batch_size, least)
    assert sum(shares) == batch_size and min(shares) >= least
    choices = (choice for choice in every_choice(len(ideal), batch_size) if min(choice) >= least)
    assert cost(shares, ideal) <= min(cost(choice, ideal) for choice in choices) + 1e-9


@given(some_shares(), st.data())
def test_ideal_shares_would_have_taken_the_same_time(shares: list[int], data: st.DataObject) -> None:
    """Where the time is in proportion to the samples, one step finds the balance."""
    compute_s = data.draw(st.lists(SECONDS, min_size=len(shares), max_size=len(shares)))
    batch_size = sum(shares)
    ideal = ideal_shares(shares, compute_s, batch_size)
    assert isclose(sum(ideal), batch_size)
    times = [wanted * time_s / share for share, wanted, time_s in zip(shares, ideal, compute_s, strict=True)]
    assert all(isclose(time_s, times[0], rel_tol=1e-9) for time_s in times)


@given(some_shares(), st.data())
def test_new_shares_are_shares(shares: list[int], data: st.DataObject) -> None:
    anything = st.none() | st.floats(0, 1.7e308)
    compute_s = data.draw(st.lists(anything, min_size=len(shares), max_size=len(shares)))
    dealt = balanced(shares, compute_s, sum(shares))
    assert sum(dealt) == sum(shares) and min(dealt) >= 1


@given(some_shares(), SECONDS)
def test_equal_times_leave_the_shares_alone(shares: list[int], compute_s: float) -> None:
    assert balanced(shares, [compute_s] * len(shares), sum(shares)) == tuple(shares)


@given(some_shares(), SECONDS)
def test_equal_speeds_end_in_even_shares(shares: list[int], per_sample_s: float) -> None:
    ideal = ideal_shares(shares, [share * per_sample_s for share in shares], sum(shares))
    assert all(isclose(share, sum(shares) / len(shares)) for share in ideal)


def test_three_to_one_and_back() -> None:
    slowed = balanced((32, 32), [3.0, 1.0], 64)
    assert slowed == (16, 48)
    assert balanced(slowed, [1.5, 1.5], 64) == slowed
    assert balanced(slowed, [0.5, 1.5], 64) == (32, 32)


@pytest.mark.parametrize("unknown", [None, 0.0])
def test_a_replica_without_a_time_keeps_its_share(unknown: float | None) -> None:
    assert ideal_shares([10, 20, 30], [unknown, 1.0, 4.5], 60) == pytest.approx((10.0, 37.5, 12.5))
    assert ideal_shares([10, 20], [unknown, unknown], 30) == (10.0, 20.0)
    assert ideal_shares([10, 20], [unknown, 7.0], 30) == (10.0, 20.0)


@given(st.integers(1, 50), st.integers(0, 500))
def test_even_shares(count: int, over: int) -> None:
    shares = first_shares(count, count + over, None)
    assert shares == integer_shares([(count + over) / count] * count, count + over)
    assert max(shares) - min(shares) <= 1 and list(shares) == sorted(shares, reverse=True)


def test_first_shares() -> None:
    assert first_shares(3, 64, None) == (22, 21, 21)
    assert first_shares(3, 64, [5, 17, 42]) == (5, 17, 42)


def test_a_smaller_mini_batch_is_dealt_in_proportion() -> None:
    assert shares_of_part([5, 17, 42], 64) == (5, 17, 42)
    assert shares_of_part([5, 17, 42], 32) == (3, 8, 21)
    assert shares_of_part([1, 1, 62], 4) == (1, 1, 2)


def test_fewer_samples_than_replicas() -> None:
    for refused in (
        lambda: first_shares(3, 2, None),
        lambda: integer_shares([1, 1, 1], 2),
        lambda: shares_of_part([4, 4], 1),
    ):
        with pytest.raises(PlanError, match="replicas cannot share a mini-batch of"):
            refused()


@given(some_shares())
def test_rows_are_all_rows_once_in_order(shares: list[int]) -> None:
    rows = list(range(sum(shares)))
    parts = [rows[rows_of(shares, rank)] for rank in range(len(shares))]
    assert [row for part in parts for row in part] == rows
    assert [len(part) for part in parts] == shares
