"""Partitions are complete, disjoint, contiguous, and the best there is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alray.core.errors import PlanError
from alray.planning.prediction.partition import (
    partition_auto,
    partition_uniform,
    requested_partition,
    run_sums,
    short_runs,
    with_cheapest_largest,
)

chains = st.lists(st.integers(0, 20), min_size=1, max_size=9).flatmap(
    lambda costs: st.tuples(st.just(costs), st.integers(1, len(costs)))
)


def by_parameters(parameters: list[int], stages: int) -> tuple[int, ...]:
    return requested_partition("parameters", parameters, stages, auto=pytest.fail)


def every_partition(size: int, stages: int) -> list[tuple[int, ...]]:
    return [
        tuple(end - start for start, end in pairwise((0, *cuts, size)))
        for cuts in combinations(range(1, size), stages - 1)
    ]


def stage_costs(costs: Sequence[float], counts: tuple[int, ...], edges: Sequence[float] | None = None) -> list[float]:
    found = []
    first = 0
    for count in counts:
        end = first + count
        cost = float(sum(costs[first:end]))
        if edges is not None:
            cost += (edges[first - 1] / 2 if first else 0.0) + (edges[end - 1] / 2 if end < len(costs) else 0.0)
        found.append(cost)
        first = end
    return found


@given(chains)
@settings(max_examples=80)
def test_auto_is_the_best_of_all(chain: tuple[list[int], int]) -> None:
    costs, stages = chain

    def rank(counts: tuple[int, ...]) -> tuple[float, float, tuple[int, ...]]:
        each = stage_costs(costs, counts)
        return max(each), sum(cost**2 for cost in each), counts

    assert partition_auto(costs, stages) == min(every_partition(len(costs), stages), key=rank)


@given(chains, st.data())
def test_messages_count_half_on_either_side(chain: tuple[list[int], int], data: st.DataObject) -> None:
    costs, stages = chain
    edges = data.draw(st.lists(st.integers(0, 20), min_size=len(costs) - 1, max_size=len(costs) - 1))
    half = np.array([0.0, *edges, 0.0]) / 2
    sums = run_sums(costs)
    runs = short_runs(lambda first, ends: sums(first, ends) + half[first] + half[ends], len(costs), len(costs))
    found, slowest = with_cheapest_largest(lambda stage: runs, len(costs), stages)
    best = min(max(stage_costs(costs, counts, edges)) for counts in every_partition(len(costs), stages))
    assert max(stage_costs(costs, found, edges)) == slowest == best


@given(chains, st.data())
def test_memory_limits_are_kept(chain: tuple[list[int], int], data: st.DataObject) -> None:
    costs, stages = chain
    memory = data.draw(st.lists(st.integers(0, 9), min_size=len(costs), max_size=len(costs)))
    limits = data.draw(st.lists(st.integers(0, 40), min_size=stages, max_size=stages))
    fitting = [
        counts
        for counts in every_partition(len(costs), stages)
        if all(held <= limit for held, limit in zip(stage_costs(memory, counts), limits, strict=True))
    ]
    sums, held = (short_runs(run_sums(each), len(costs), len(costs)) for each in (costs, memory))
    runs = [np.where(held <= limit, sums, np.inf) for limit in limits]
    found, slowest = with_cheapest_largest(runs.__getitem__, len(costs), stages)
    if not fitting:
        assert slowest == np.inf
        return
    assert found in fitting
    assert max(stage_costs(costs, found)) == slowest == min(max(stage_costs(costs, counts)) for counts in fitting)


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=40), st.data())
def test_every_kind_is_complete_disjoint_and_contiguous(costs: list[float], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(costs)))
    for counts in (
        partition_auto(costs, stages),
        by_parameters([round(cost) for cost in costs], stages),
        partition_uniform(len(costs), stages),
    ):
        # Counts of at least one, in order, that add up: each component is on one stage, and stages are contiguous.
        assert len(counts) == stages
        assert min(counts) >= 1
        assert sum(counts) == len(costs)


def test_known_partitions() -> None:
    assert partition_uniform(7, 3) == (3, 2, 2)
    assert by_parameters([100, 1, 1, 98], 2) == (1, 3)
    # Thirds that binary fractions cannot tell apart are still ties: the earliest cut wins.
    assert partition_auto([0.1, 0.1, 0.1], 2) == (1, 2)
    # The slowest stage is 10 whatever the cut of the rest; squares prefer 4 + 4 to 2 + 6.
    assert partition_auto([10, 2, 2, 2, 2], 3) == (1, 2, 2)


def test_a_thousand_components_on_64_stages() -> None:
    costs = [1.0 + (index * 37 % 11) for index in range(1000)]
    counts = partition_auto(costs, 64)
    mean = sum(costs) / 64
    assert mean <= max(stage_costs(costs, counts)) <= mean + max(costs)


@pytest.mark.parametrize(
    ("counts", "stages", "message"),
    [
        ([1, 1], 2, "pipeline.partition: [1, 1] covers 2 components, but the model has 4; "),
        ([2, 2], 3, "pipeline.partition: [2, 2] is for 2 stages, but `stages` is 3; "),
        ([4, 0], 2, "pipeline.partition: [4, 0] leaves a stage empty; "),
        ([1] * 5, 5, "pipeline.stages: 5 stages, but the model has only 4 components; "),
    ],
)
def test_partitions_that_do_not_add_up(counts: list[int], stages: int, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        requested_partition(counts, [1] * 4, stages, auto=pytest.fail)
    assert str(caught.value).startswith(message)
