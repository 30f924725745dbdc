"""Stages that compute at once slow each other down: by how much is reckoned from the simulated timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from alray.planning.prediction.costs import Costs
from alray.planning.prediction.predict import bound_of, predict_step
from alray.planning.prediction.program import Program
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.simulate import simulate
from alray.planning.schedules.durations import Durations
from alray.planning.schedules.table import SCHEDULES

Make = Callable[..., Costs]


def crowding(schedule: str, stages: int, others: int) -> list[float]:
    """Of stages with F = 1, B = 2 and U = 1."""
    durations = Durations({"F": [1] * stages, "B": [2] * stages, "U": [1] * stages})
    return simulate(Program.of_schedule(SCHEDULES[schedule], stages, 12), durations, in_flight=4).crowding(others)


def test_crowding_by_hand() -> None:
    assert crowding("sequential", 2, 1) == [0, 0]
    assert crowding("streamed", 2, 1) == pytest.approx([1, 1])
    # FBBU. and .FBBU: three of the four seconds of each are beside the other.
    assert crowding("overlapped", 2, 1) == pytest.approx([3 / 4, 3 / 4])
    # F..BBU, .F.BBU, ..FBBU: one second of four alone, three beside both others.
    assert crowding("parallel_backward", 3, 2) == pytest.approx([3 / 4] * 3)
    # FBBU.., .FBBU., ..FBBU: beside 0 1 2 2, 1 2 2 1 and 2 2 1 0 others.
    assert crowding("overlapped", 3, 2) == pytest.approx([5 / 8, 6 / 8, 5 / 8])
    # On two processors there is at most one other, however many stages there are.
    assert crowding("overlapped", 3, 1) == pytest.approx([3 / 4, 1, 3 / 4])
    assert crowding("streamed", 1, 0) == [0]


def setting(costs: Costs, schedule: str, cores: int | None = 2, stages: int = 2) -> StepSetting:
    return StepSetting(schedule, costs, stages=stages, in_flight=4, cores=cores)


def test_what_computes_at_once_is_slower(make_costs: Make) -> None:
    costs = replace(make_costs(), contention=1.1)
    # Stage 1 takes 110 ms, and the 35 ms of stage 0 are always beside it.
    streamed = predict_step(setting(costs, "streamed"), [1, 3])
    slower = 1 + 0.1 * 35 / 110
    assert streamed.step_time_s == pytest.approx(0.110 * slower)
    assert streamed.bubble == pytest.approx(1 - (1.1 * 0.035 + slower * 0.110) / (2 * 0.110 * slower))
    assert bound_of(setting(costs, "streamed"), [1, 3]) == pytest.approx(0.110)
    # One stage at a time, one stage alone, or a device for each: nobody is in the way.
    assert predict_step(setting(costs, "sequential"), [1, 3]).step_time_s == pytest.approx(0.145)
    assert predict_step(setting(costs, "streamed", stages=1), [4]).step_time_s == pytest.approx(0.145)
    assert predict_step(setting(costs, "streamed", cores=None), [1, 3]).step_time_s == pytest.approx(0.110)
    # What waits is not slower: with a quarter of the time on a processor, a quarter of it all.
    waits = predict_step(setting(replace(costs, processor_share=0.25), "streamed"), [1, 3])
    assert waits.step_time_s == pytest.approx(0.110 * (1 + 0.025 * 35 / 110))


def test_what_was_measured_beside_more_slows_down_by_their_share(make_costs: Make) -> None:
    """Costs for any layout are measured beside as many others as there are processors, and a layout may have fewer."""

    def step_s(stages: int, partition: list[int], **measured: float) -> float:
        costs = replace(make_costs(), **measured)
        return predict_step(setting(costs, "streamed", cores=8, stages=stages), partition).step_time_s

    for stages, partition in ((2, [2, 2]), (3, [1, 1, 2])):
        own = step_s(stages, partition, contention=1.0 + 0.1 * (stages - 1), beside=stages - 1)
        assert step_s(stages, partition, contention=1.7, beside=7) == pytest.approx(own)
        assert step_s(stages, partition, contention=1.0 + 0.1 * (stages - 1)) == pytest.approx(own)


def test_replicas_compute_at_once(make_costs: Make) -> None:
    """Two replicas of a stage are in each other's way all the time; of two stages in turns, each one and its copy."""
    costs = replace(make_costs(), contention=1.1)
    for stages, partition in ((1, [4]), (2, [1, 3])):
        alone, beside = (
            predict_step(replace(setting(each, "sequential", stages=stages), replicas=2), partition).step_time_s
            for each in (make_costs(), costs)
        )
        assert beside == pytest.approx(1.1 * alone)


def test_pipelines_too(make_costs: Make) -> None:
    costs = replace(make_costs(), contention=1.2)
    alone = predict_step(setting(make_costs(), "naive"), [2, 2])
    assert predict_step(setting(costs, "naive"), [2, 2]).step_time_s > alone.step_time_s  # updates are at the same time
    gpipe = replace(setting(costs, "gpipe"), micro_batches=4)
    without = replace(setting(make_costs(), "gpipe"), micro_batches=4)
    found = predict_step(gpipe, [2, 2]).step_time_s / predict_step(without, [2, 2]).step_time_s
    assert 1.1 < found < 1.2


def test_a_part_of_a_mini_batch_by_hand(make_costs: Make) -> None:
    """F and B of a micro-batch are what each takes anyway, and a quarter of the rest."""
    from alray.planning.prediction.seconds import RunSeconds

    costs = make_costs()
    first, *rest = costs.components  # F 10 ms, B 20 ms
    costs = replace(costs, components=(replace(first, forward_fixed_s=0.002, backward_fixed_s=-0.004), *rest))
    durations = RunSeconds(replace(setting(costs, "gpipe"), micro_batches=4)).of_cuts([1, 3])
    assert durations.computing["F"] == pytest.approx([0.002 + 0.008 / 4, 0.040 / 4])
    assert durations.computing["B"] == pytest.approx([-0.004 + 0.024 / 4 + 0.0005, 0.050 / 4])


def test_an_average_over_replicas_is_no_slower(make_costs: Make) -> None:
    """It is messages: four components compute 145 ms, and their averages take a second."""
    components = [replace(each, reduce_s=0.25) for each in make_costs().components]
    costs = replace(make_costs(), components=tuple(components), contention=1.2)
    found = predict_step(replace(setting(costs, "streamed", stages=1), replicas=2), [4])
    assert found.step_time_s == pytest.approx(1.2 * 0.145 + 1.0)
    assert found.bubble == pytest.approx(1.0 / found.step_time_s)  # a stage waits meanwhile
