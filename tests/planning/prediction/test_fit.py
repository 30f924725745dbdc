"""Does a setting fit the memory of its devices?"""

from __future__ import annotations

from collections.abc import Callable

from alray.planning.prediction.best import best_cut
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.fit import fit_of
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.setting import StepSetting


def setting(costs: Costs, stages: int, limit: int, schedule: str = "streamed") -> StepSetting:
    return StepSetting(schedule=schedule, costs=costs, stages=stages, in_flight=4, memory_limits=(limit,) * stages)


def test_the_fastest_cut_of_those_that_fit(make_costs: Callable[..., Costs]) -> None:
    roomy = fit_of(setting(make_costs(), 2, 10**9))
    assert roomy.fits and roomy.partition == best_cut(setting(make_costs(), 2, 10**9)).cut == (2, 2)
    assert [10**9 - need for need in roomy.memory_bytes] == list(roomy.left_bytes)
    assert roomy.gain == 0.0 and roomy.predicted_step_range_s is None
    # Component 3 alone needs most: with less memory the cut gives the other stage the rest.
    tight = fit_of(setting(make_costs(), 2, max(roomy.memory_bytes) - 1))
    assert tight.fits and tight.partition == (3, 1)
    assert tight.predicted_step_time_s > roomy.predicted_step_time_s
    assert tight.rank > roomy.rank


def test_what_does_not_fit_says_how_much_is_missing(make_costs: Callable[..., Costs]) -> None:
    small = setting(make_costs(), 2, 1000)
    found = fit_of(small)
    assert not found.fits and found.gain is None
    needed = [memory_of(small, found.partition, stage).total_bytes for stage in range(2)]
    assert list(found.left_bytes) == [1000 - need for need in needed]
    nearer = fit_of(setting(make_costs(), 4, 1000))
    assert found.rank > nearer.rank > fit_of(setting(make_costs(), 1, 10**9)).rank
