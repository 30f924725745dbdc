"""Best settings that are not bracketed, on made-up figures."""

from __future__ import annotations

import pytest

from alray.studies.doubt import not_bracketed
from alray.studies.verdicts import answers_of

from .conftest import results, trial


def test_a_best_value_at_the_edge_of_its_range_is_told() -> None:
    """Of each point three settings were tried, and the middle ones are the best."""
    space = {
        "optimizer.lr": {"loguniform": [1e-4, 1.0]},
        "optimizer.momentum": {"one_minus_loguniform": [0.5, 0.999]},
        "optimizer.kind": {"choice": ["sgd", "adam"]},
    }
    best = [
        {"optimizer.lr": 0.9, "optimizer.momentum": 0.99, "optimizer.kind": "sgd"},  # 1 % below, 0.05 of 4 decades
        {"optimizer.lr": 1.2e-4, "optimizer.momentum": 0.9988, "optimizer.kind": "sgd"},
        {"optimizer.lr": 0.5, "optimizer.momentum": 0.8, "optimizer.kind": "adam"},  # 0.3 of a decade from the end
    ]
    around = ({"optimizer.lr": 1e-4, "optimizer.momentum": 0.5}, {"optimizer.lr": 1.0, "optimizer.momentum": 0.999})
    cells = [(at, each, way) for at, each in enumerate(best) for way in (0, 1, 2)]
    trials = [
        trial(
            number,
            {"data.batch_size": 8 * 2**at},
            index=way,
            values=each if way == 0 else each | around[way - 1],
            validation=0.9 if way == 0 else 0.8,
        )
        for number, (at, each, way) in enumerate(cells)
    ]
    of = results(trials, search={"trials": 3, "space": space})
    told = [(row.point["data.batch_size"], key, sentence) for row, key, sentence in not_bracketed(of, of.rows)]
    assert [(size, key) for size, key, _ in told] == [
        (8, "optimizer.lr"),
        (16, "optimizer.lr"),
        (16, "optimizer.momentum"),
    ]
    assert told[1][2].startswith("data.batch_size=16: the best optimizer.lr, 0.00012, ")
    assert "[0.0001, 1]" in told[1][2]


@pytest.mark.parametrize(
    ("rates", "status", "said"),
    [
        ((0.01, 0.03, 0.1), "finished", "it is the largest of 3 that were tried"),
        ((0.1, 0.2, 0.3), "finished", "it is the smallest of 3 that were tried"),
        ((0.01, 0.1, 0.3), "finished", None),
        ((0.01, 0.1, 0.3), "diverged", None),
        ((0.01, 0.1, 0.3), "failed", "it is the largest of 2 that were tried"),
    ],
)
def test_the_smallest_or_largest_that_was_tried_is_not_bracketed(
    rates: tuple[float, ...], status: str, said: str | None
) -> None:
    """The rate 0.1 is the best, far from the ends of its range. The status is that of the largest rate."""
    trials = [
        trial(
            number,
            {},
            index=index,
            seed=seed,
            values={"optimizer.lr": rate},
            validation=0.9 if rate == 0.1 else 0.8,
            status=status if rate == 0.3 else "finished",
        )
        for number, (index, rate, seed) in enumerate(
            (index, rate, seed) for index, rate in enumerate(rates) for seed in range(3)
        )
    ]
    search = {"trials": 3, "space": {"optimizer.lr": {"loguniform": [1e-3, 1.0]}}}
    claim = {"claim": "good", "figure": "validation", "above": 0.5}
    (found,) = answers_of(results(trials, search=search, repeats=3, verdicts=[claim]))
    told = [doubt for doubt in found.doubts if "not bracketed" in doubt]
    assert (found.answer, told != []) == ("holds", bool(said))
    assert all(f"the best optimizer.lr, 0.1, is not bracketed: {said}" in doubt for doubt in told)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ([0.01, 0.03, 0.1], "it is the largest of 3 that were tried; try more"),
        ([0.3, 0.1], "it is the smallest of 2 that were tried; try more"),
        ([0.3, 0.1, 0.01], None),
        ([0.1], None),
        ([None, 0.1], None),
    ],
)
def test_the_smallest_or_largest_of_a_choice_of_numbers_is_not_bracketed(
    choice: list[float | None], said: str | None
) -> None:
    """The rate 0.1 is the best. A choice of one value, or of other things than numbers, has no ends."""
    trials = [
        trial(at, {}, index=at, values={"optimizer.lr": rate}, validation=0.9 if rate == 0.1 else 0.8)
        for at, rate in enumerate(choice)
    ]
    of = results(trials, search={"trials": len(choice), "space": {"optimizer.lr": {"choice": choice}}})
    told = [sentence for _, _, sentence in not_bracketed(of, of.rows)]
    assert told == ([f"the best optimizer.lr, 0.1, is not bracketed: {said}"] if said else [])
