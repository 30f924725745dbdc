"""Mini-batches chosen on the command line."""

from __future__ import annotations

import pytest

from alray.config.loading.step_ranges import MOST_STEPS, parse_steps, require_steps
from alray.core.errors import RequestError


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("20", (range(20, 21),)),
        ("20-24", (range(20, 25),)),
        ("40, 20 - 24", (range(20, 25), range(40, 41))),
        ("3-5,4-9,10", (range(3, 11),)),
        ("7,7", (range(7, 8),)),
        (f"1-{MOST_STEPS}", (range(1, MOST_STEPS + 1),)),
    ],
)
def test_numbers_and_ranges_are_put_in_order_and_together(text: str, ranges: tuple[range, ...]) -> None:
    assert parse_steps(text) == ranges


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "is missing"),
        ("20,", "is missing"),
        ("20-", "`20-` is not a mini-batch"),
        ("-3", "`-3` is not a mini-batch"),
        ("2.5", "`2.5` is not a mini-batch"),
        ("9" * 5000, "is not a mini-batch"),
        ("\u0663", "is not a mini-batch"),
        ("0-3", "no mini-batch 0"),
        ("24-20", "24-20 ends before it starts"),
        ("1-50,60-111", "102 mini-batches is too large"),
    ],
)
def test_a_slip_is_told_with_its_cause(text: str, cause: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_steps(text)
    assert str(caught.value).startswith("--profile: ") and cause in str(caught.value)


def test_every_mini_batch_has_to_be_one_of_the_run() -> None:
    require_steps((range(1, 3), range(10, 11)), done=0, total=10)
    require_steps((range(5, 6),), done=4, total=10)
    require_steps((), done=10, total=10)
    for ranges, done in (((range(9, 12),), 0), ((range(4, 6),), 4), ((range(10, 11),), 10)):
        with pytest.raises(RequestError, match="is not part of this run"):
            require_steps(ranges, done=done, total=10)
