"""Does a setting fit the memory of its devices?"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from alray.planning.prediction.best import best_cut
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.fit import fit_of, with_best_cuts
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.search import every_cut
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.table import schedules_on


def setting(costs: Costs, stages: int, limit: int, schedule: str = "streamed") -> StepSetting:
    return StepSetting(schedule=schedule, costs=costs, stages=stages, in_flight=4, memory_limits=(limit,) * stages)


def test_the_fastest_cut_of_those_that_fit(make_costs: Callable[..., Costs]) -> None:
    roomy = fit_of(setting(make_costs(), 2, 10**9))
    assert roomy.fits and roomy.partition == best_cut(setting(make_costs(), 2, 10**9)).cut == (2, 2)
    assert [10**9 - need for need in roomy.memory_bytes] == list(roomy.left_bytes)
    assert roomy.predicted_step_range_s is None
    # Component 3 alone needs most: with less memory the cut gives the other stage the rest.
    tight = fit_of(setting(make_costs(), 2, max(roomy.memory_bytes) - 1))
    assert tight.fits and tight.partition == (3, 1)
    assert tight.predicted_step_time_s > roomy.predicted_step_time_s
    assert tight.rank > roomy.rank


def test_what_does_not_fit_says_how_much_is_missing(make_costs: Callable[..., Costs]) -> None:
    small = setting(make_costs(), 2, 1000)
    found = fit_of(small)
    assert not found.fits
    needed = [memory_of(small, found.partition, stage).total_bytes for stage in range(2)]
    assert list(found.left_bytes) == [1000 - need for need in needed]
    nearer = fit_of(setting(make_costs(), 4, 1000))
    assert found.rank > nearer.rank > fit_of(setting(make_costs(), 1, 10**9)).rank


@pytest.mark.parametrize("family", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_the_fastest_of_random_chains_is_that_of_every_search(
    make_costs: Callable[..., Costs], seed: int, family: bool
) -> None:
    """On devices of different speeds, the second chain with memory for few cuts."""
    drawn = random.Random(seed)
    few = make_costs(edge_latency_s=drawn.choice((0.0, 1e-3)), edge_s_per_byte=drawn.choice((0.0, 1e-6)))
    components = tuple(
        replace(
            few.components[0],
            forward_s=drawn.uniform(0.001, 0.02),
            backward_s=drawn.uniform(0.001, 0.04),
            output_bytes=drawn.randint(1, 1000),
            activation_bytes=drawn.randint(1, 3000),
            optimizer_bytes=drawn.randint(0, 2000),
        )
        for _ in range(8)
    )
    costs = replace(few, components=components, batch_size=6)
    roomy = [
        StepSetting(
            schedule.name,
            costs,
            stages,
            4,
            number,
            schedule.default_virtual_stages,
            stage_speed=(1.0, 0.5, 2.0)[:stages],
        )
        for stages in (2, 3)
        for schedule in schedules_on(stages, local_losses=family)
        for number in (schedule.possible_micro_batches(stages, 6) if schedule.cuts_mini_batches else (1,))
    ]
    limit = 10**9
    if seed:
        some = drawn.choice(roomy)
        cut = drawn.choice(list(every_cut(8, some.num_parts)))
        limit = max(memory_of(some, cut, stage).total_bytes for stage in range(some.stages))
    settings = [replace(each, memory_limits=(limit,) * each.stages) for each in roomy]
    searches: list[int] = []
    near = [fit_of(each, search=False) for each in settings]
    rows = with_best_cuts(near, lambda number, most: searches.append(number))
    best = min(rows, key=lambda row: row.rank)
    every = min((fit_of(each) for each in settings), key=lambda row: row.rank)
    assert len(rows) == len(settings) > len(searches)
    assert best.fits and every.fits
    assert best.predicted_step_time_s == pytest.approx(every.predicted_step_time_s, rel=1e-9)
