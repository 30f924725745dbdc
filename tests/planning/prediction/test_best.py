"""The automatic cut: the best of all, at any speeds of the devices and within their memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from alray.core.errors import PlanError
from alray.planning.prediction.best import best_cut
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.make import limited_by
from alray.planning.prediction.memory import memory_of, run_bytes, stage_ranges
from alray.planning.prediction.partition import partition_uniform
from alray.planning.prediction.predict import predict_step
from alray.planning.prediction.search import every_cut
from alray.planning.prediction.setting import (
    IN_TURNS_ON_GPU,
    ON_CPU,
    ON_OWN_GPU,
    ON_SHARED_GPU,
    StageMemory,
    StepSetting,
)
from alray.planning.schedules.table import SCHEDULES

Make = Callable[..., Costs]


def random_costs(costs: Costs, size: int, seed: int) -> Costs:
    """As many components with random times, of 1 to 20 ms forwards and 1 to 40 ms backwards."""
    numbers = random.Random(seed)
    components = tuple(
        replace(
            costs.components[0],
            name=f"component {index}",
            forward_s=numbers.randint(1, 20) * 1e-3,
            backward_s=numbers.randint(1, 40) * 1e-3,
            update_s=numbers.randint(0, 5) * 1e-3,
            output_bytes=numbers.randint(0, 1000),
            activation_bytes=numbers.randint(1, 1000),
            forward_peak_bytes=numbers.randint(1, 1500),
            backward_peak_bytes=numbers.randint(1, 3000),
            backward_fixed_bytes=numbers.randint(0, 400),
            adding_peak_bytes=numbers.randint(1, 2500),
            adding_fixed_bytes=numbers.randint(0, 300),
            update_peak_bytes=numbers.randint(0, 1000),
        )
        for index in range(size)
    )
    return replace(costs, components=components)


def shortest(setting: StepSetting) -> float:
    cuts = every_cut(len(setting.costs.components), setting.num_parts)
    return min(predict_step(setting, cut).step_time_s for cut in cuts)


SHAPES = [
    *((name, 1, 1, 3) for name, schedule in SCHEDULES.items() if schedule.local_losses),
    *((name, 1, 2, 2) for name, schedule in SCHEDULES.items() if schedule.local_losses),
    ("naive", 1, 1, 3),
    ("gpipe", 4, 1, 3),
    ("1f1b", 4, 1, 3),
    ("2bw", 4, 1, 3),
    ("interleaved_1f1b", 2, 2, 2),
    ("zero_bubble", 4, 1, 2),
    ("zero_bubble", 2, 2, 2),
    ("zb_v", 2, 2, 2),
    ("dualpipe_v", 4, 2, 2),
]
"""Schedule, micro-batches, virtual stages, stages."""


def test_every_schedule_is_compared() -> None:
    assert {name for name, *_ in SHAPES} == {name for name, schedule in SCHEDULES.items() if not schedule.one_stage}


@pytest.mark.few
@pytest.mark.parametrize(("schedule", "micro_batches", "virtual_stages", "stages"), SHAPES)
def test_no_cut_has_a_shorter_step(
    make_costs: Make, schedule: str, micro_batches: int, virtual_stages: int, stages: int
) -> None:
    """With messages that take from nothing to as long as a computation, and slow ones on a crowded edge."""
    numbers = random.Random(schedule)
    for seed in range(8):
        costs = replace(
            random_costs(make_costs(), 7, seed),
            edge_s_per_byte=numbers.choice((0.0, 1e-6, 2e-5, 1e-4)),
            edge_latency_s=numbers.choice((0.0, 1e-3, 0.1)),
            data_s=numbers.choice((0.0, 0.02)),
        )
        in_flight, replicas = numbers.choice((1, 4)), numbers.choice((1, 2))
        setting = StepSetting(schedule, costs, stages, in_flight, micro_batches, virtual_stages, replicas=replicas)
        best = best_cut(setting)
        assert predict_step(setting, best.cut).step_time_s == pytest.approx(shortest(setting), rel=1e-6)
        assert best.is_best and best.step_s == pytest.approx(shortest(setting), rel=1e-6)


def test_no_step_is_shorter_than_its_slowest_stage_is_busy(make_costs: Make) -> None:
    """Of 200 equal components on 8 stages there are 2e12 cuts, and the first one cannot be beaten."""
    costs = replace(make_costs(), components=make_costs().components[:1] * 200)
    for schedule, is_best in (("sequential", False), ("streamed", True)):
        best = best_cut(StepSetting(schedule, costs, 8, 4))
        assert (best.cut, best.is_best) == ((25,) * 8, is_best), schedule


def test_sequential_saves_a_dear_message(make_costs: Make) -> None:
    """The cut that suits `streamed` sends a large output; [3, 1, 1, 1] sends small ones only."""
    first = make_costs().components[0]
    sizes = (9_000, 9_000, 1_000, 1_000, 1_000, 0)
    components = tuple(replace(first, output_bytes=size) for size in sizes)
    costs = replace(make_costs(edge_s_per_byte=2e-6), components=components)
    assert best_cut(StepSetting("streamed", costs, 4, 4)).cut == (2, 1, 1, 2)
    assert best_cut(StepSetting("sequential", costs, 4, 4)).cut == (3, 1, 1, 1)


@pytest.mark.full
def test_more_cuts_than_can_be_tried(make_costs: Make) -> None:
    costs = replace(random_costs(make_costs(), 64, seed=2), edge_s_per_byte=2e-5)  # 553,270,671 cuts
    for schedule, micro_batches in (("overlapped", 1), ("1f1b", 16)):
        setting = StepSetting(schedule, costs, 8, 4, micro_batches)
        even = partition_uniform(64, 8)
        best = best_cut(setting)
        assert not best.is_best and best.step_s == pytest.approx(predict_step(setting, best.cut).step_time_s)
        assert predict_step(setting, best.cut).step_time_s < predict_step(setting, even).step_time_s
        sentence = limited_by(setting, best.cut, predict_step(setting, best.cut))
        assert sentence.endswith("; no better cut was found")
    sentence = limited_by(setting, even, predict_step(setting, even))
    assert f"; a better cut {list(best.cut)} gives 1." in sentence


def test_what_stages_that_share_processors_may_gain(make_costs: Make) -> None:
    """The even cut takes 10 % longer where both stages compute all the time: another one may win some of it back."""
    costs = replace(make_costs(), components=make_costs().components[:1] * 4, contention=1.1)
    setting = StepSetting("streamed", costs, 2, 4, cores=4)
    sentence = limited_by(setting, (2, 2), predict_step(setting, (2, 2)))
    assert sentence == "all stages take the same, and the stages idle for 0 % of the step; no better cut was found"


@pytest.mark.few
@pytest.mark.parametrize("schedule", ["streamed", "overlapped", "parallel_backward", "sequential", "1f1b"])
def test_devices_of_different_speed(make_costs: Make, schedule: str) -> None:
    micro_batches = 4 if schedule == "1f1b" else 1
    for seed in range(4):
        costs = random_costs(make_costs(), 7, seed)
        setting = StepSetting(schedule, costs, 3, 4, micro_batches, stage_speed=(1.0, 0.5, 2.0))
        best = predict_step(setting, best_cut(setting).cut).step_time_s
        assert best == pytest.approx(shortest(setting), rel=1e-6)


def test_a_device_twice_as_fast_takes_twice_as_much(make_costs: Make) -> None:
    costs = make_costs()
    even = replace(costs, components=costs.components[:1] * 6)
    assert best_cut(StepSetting("streamed", even, 2, 4)).cut == (3, 3)
    setting = StepSetting("streamed", even, 2, 4, stage_speed=(1.0, 2.0))
    assert best_cut(setting).cut == (2, 4)
    assert predict_step(setting, (2, 4)).step_time_s == pytest.approx(2 * 0.035)
    assert best_cut(replace(setting, schedule="gpipe", micro_batches=8)).cut == (2, 4)


def test_equal_cuts_are_told_apart_as_elsewhere(make_costs: Make) -> None:
    # Every cut of `naive` takes the same without updates: the most even one, and of those the earliest.
    costs = make_costs()
    even = replace(costs, components=(replace(costs.components[0], update_s=0.0),) * 7)
    assert best_cut(StepSetting("naive", even, 3, 4)).cut == (2, 2, 3)


@pytest.mark.parametrize(
    ("schedule", "micro_batches"), [("streamed", 1), ("gpipe", 4), ("1f1b", 4), ("zero_bubble", 4)]
)
@pytest.mark.parametrize(
    ("memory", "replicas"), [(ON_CPU, 1), (ON_CPU, 2), (ON_SHARED_GPU, 1), (ON_OWN_GPU, 2), (IN_TURNS_ON_GPU, 1)]
)
def test_the_memory_of_runs_agrees_with_the_stages(
    make_costs: Make, schedule: str, micro_batches: int, memory: StageMemory, replicas: int
) -> None:
    costs = replace(random_costs(make_costs(), 6, 3), batch_bytes=700, copy_bytes=300)
    averaged = tuple(replace(each, average_bytes=900, average_state_bytes=500) for each in costs.components)
    costs = replace(costs, components=averaged)
    setting = StepSetting(schedule, costs, 3, 4, micro_batches, memories=(memory, ON_CPU, memory), replicas=replicas)
    for cut in every_cut(6, 3):
        for stage, own in enumerate(stage_ranges(cut)):
            exact = memory_of(setting, cut, stage).total_bytes
            assert run_bytes(setting, stage, own.start, own.stop) == exact


@pytest.mark.parametrize(
    ("memory", "below", "above"),
    [(ON_CPU, 5, 5), (ON_SHARED_GPU, 1, 0), (ON_OWN_GPU, 1, 5), (IN_TURNS_ON_GPU, 5, 5)],
)
def test_what_lies_in_the_memory_of_a_gpu(make_costs: Make, memory: StageMemory, below: int, above: int) -> None:
    """Snapshots and messages that wait lie in host memory; the next mini-batch is on the GPU already."""
    costs = replace(make_costs(output_bytes=1000), batch_bytes=700)
    setting = StepSetting("streamed", costs, 3, 4, memories=(memory,) * 3)
    first, middle, last = (memory_of(setting, (1, 1, 2), stage) for stage in range(3))
    assert first.batch_bytes == (700 if memory is ON_CPU else 1400) and middle.batch_bytes == 0
    assert first.channel_bytes == above * 1000 and last.channel_bytes == below * 2000
    assert middle.channel_bytes == below * 1000 + above * 2000
    copied = middle.parameters_bytes + middle.optimizer_bytes
    assert middle.snapshot_bytes == (copied if memory is ON_CPU else 0)


@pytest.mark.parametrize(
    ("schedule", "micro_batches", "virtual_stages"),
    [("streamed", 1, 1), ("overlapped", 1, 1), ("streamed", 1, 2), ("gpipe", 4, 1), ("interleaved_1f1b", 2, 2)],
)
def test_memory_limits_are_kept(make_costs: Make, schedule: str, micro_batches: int, virtual_stages: int) -> None:
    free = StepSetting(schedule, random_costs(make_costs(), 6, 5), 2, 4, micro_batches, virtual_stages)
    cuts = list(every_cut(6, free.num_parts))
    unlimited = best_cut(free).cut
    # Stage 0 may hold a little less than it would in the best cut; stage 1 as much as it likes.
    limit = memory_of(free, unlimited, 0).total_bytes - 1
    setting = replace(free, memory_limits=(limit, 10**9))
    found = best_cut(setting).cut
    assert found != unlimited
    assert memory_of(setting, found, 0).total_bytes <= limit
    fitting = [cut for cut in cuts if memory_of(setting, cut, 0).total_bytes <= limit]
    best = min(predict_step(setting, cut).step_time_s for cut in fitting)
    assert predict_step(setting, found).step_time_s == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(("schedule", "micro_batches", "virtual_stages"), [("streamed", 1, 1), ("zero_bubble", 2, 2)])
def test_where_nothing_fits_the_stage_and_its_need_are_told(
    make_costs: Make, schedule: str, micro_batches: int, virtual_stages: int
) -> None:
    setting = StepSetting(schedule, make_costs(), 2, 4, micro_batches, virtual_stages, memory_limits=(100, 10**9))
    with pytest.raises(PlanError) as caught:
        best_cut(setting)
    cut = (1, 3) if virtual_stages == 1 else (1, 1, 1, 1)
    need = memory_of(setting, cut, 0).total_bytes
    message = str(caught.value)
    assert message.startswith("pipeline.partition: ") and str(list(cut)) in message
    assert f"stage 0 needs {need:,} bytes and has 100" in message


def test_micro_batches_divide_the_mini_batch(make_costs: Make) -> None:
    with pytest.raises(PlanError, match=r"^pipeline\.micro_batches: .* 64 samples .* 6 "):
        StepSetting("gpipe", make_costs(), 2, 4, micro_batches=6)


@pytest.mark.parametrize("speeds", [(), tuple(1 + stage / 1000 for stage in range(32))])
def test_many_components_on_many_stages_keep_no_matrix_for_each(make_costs: Make, speeds: tuple[float, ...]) -> None:
    """A matrix of 300 components takes 0.7 MB. There are 32 stages, with up to 67 moments each."""
    costs = replace(make_costs(), components=make_costs().components[:1] * 300)
    setting = StepSetting("1f1b", costs, 32, 2, 64, stage_speed=speeds, memory_limits=(10**9,) * 32)
    tracemalloc.start()
    try:
        assert max(best_cut(setting).cut) == 10
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()
