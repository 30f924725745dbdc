"""What each stage does over time, as predicted and as measured."""

import dataclasses
from itertools import pairwise
from types import ModuleType

import pytest

from alray.planning.schedules.actions import parse
from alray.report.lanes import batch_of, category
from alray.report.timeline import measured_last, predicted_lanes, predicted_steady


def test_predicted_waits_fill_the_gaps(given: ModuleType) -> None:
    # Two components and one: stage 1 (4 ms) waits for stage 0 (8 ms).
    lanes = predicted_lanes(given.example_plan((2, 1)), 3)
    assert [bar.action for bar in lanes[0].bars if category(bar) == "compute"] == [
        *("0F0", "0B0", "0U0", "0F1", "0B1", "0U1", "0F2", "0B2", "0U2"),
    ]
    waits = [bar for bar in lanes[1].bars if bar.action == "receive_wait"]
    assert len(waits) == 3
    assert waits[0].start_s == 0.0
    # Between two mini-batches 8 ms of stage 0 and 10 us of sending, less 4 ms of its work and 10 us of messages.
    assert waits[2].end_s - waits[2].start_s == pytest.approx(0.004, abs=2e-5)
    for lane in lanes:
        assert all(a.end_s == pytest.approx(b.start_s) for a, b in pairwise(lane.bars))


def test_batches_far_into_the_run_keep_their_numbers(given: ModuleType) -> None:
    plan = given.example_plan()
    plan = dataclasses.replace(plan, costs=dataclasses.replace(plan.costs, data_s=0.001))
    view = predicted_steady(plan, range(100_000, 100_002))
    shown = [bar.action for bar in view.inside(view.lanes[0]) if category(bar) != "message"]
    assert shown == [
        *("data 100000", "0F100000", "0B100000", "0U100000", "data 100001", "0F100001", "0B100001", "0U100001"),
    ]
    assert view.end_s - view.start_s == pytest.approx(2 * 0.005, rel=0.01)


def test_prediction_is_stretched_where_processors_are_shared(given: ModuleType) -> None:
    plan = given.example_plan()
    slow = dataclasses.replace(plan, predicted_step_time_s=0.02)
    bar, stretched = (predicted_lanes(of, 1)[0].bars[0] for of in (plan, slow))
    ratio = (stretched.end_s - stretched.start_s) / (bar.end_s - bar.start_s)
    assert ratio == pytest.approx(0.02 / 0.004, rel=0.01)


def test_stages_that_take_turns_are_predicted_one_after_another(given: ModuleType) -> None:
    plan = dataclasses.replace(given.example_plan((2, 1)), in_turns=True, predicted_step_time_s=0.012)
    lanes = predicted_lanes(plan, 5)
    bars = sorted(bar for lane in lanes for bar in lane.bars if not bar.action.endswith("wait"))
    bars.sort(key=lambda bar: bar.start_s)
    assert {bar.stage for bar in bars} == {0, 1}
    assert all(before.end_s == pytest.approx(after.start_s) for before, after in pairwise(bars))
    assert bars[-1].end_s == pytest.approx(5 * 0.012, rel=0.01)


def test_what_was_measured_is_that_of_the_last_attempt_with_this_plan(given: ModuleType) -> None:
    plan = given.example_plan()
    lanes = measured_last(given.example_records(plan), plan)
    assert [lane.stage for lane in lanes] == [0, 1]
    batches = {batch_of(bar) for bar in lanes[1].bars} - {None}
    assert batches == {*range(5), *range(10, 15)}, "those of the warm-up too"
    assert measured_last(given.example_records(plan), given.example_plan((2,))) == []


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved_1f1b"])
def test_the_prediction_of_a_pipeline_is_of_its_micro_batches(given: ModuleType, schedule: str) -> None:
    plan = given.example_plan((2, 2), schedule=schedule, method="backpropagation")
    plan = given.with_virtual_stages(plan) if schedule != "gpipe" else dataclasses.replace(plan, micro_batches=4)
    bars = [bar.action for lane in predicted_lanes(plan, 2) for bar in lane.bars if not bar.action.endswith("wait")]
    forwards = [action for action in bars if parse(action).kind == "F"]
    parts = ["", ".1", ".2", ".3"]
    expected = [f"{stage}F{batch}{part}" for stage in range(len(plan.partition)) for batch in (0, 1) for part in parts]
    assert sorted(forwards) == sorted(expected)


def test_a_slower_device_is_predicted_to_be_slower(given: ModuleType) -> None:
    plan = dataclasses.replace(given.example_plan(), stage_speed=(1.0, 0.5))
    first, second = (
        sum(bar.end_s - bar.start_s for bar in predicted_lanes(plan, 5)[stage].bars if bar.action == f"{stage}B4")
        for stage in (0, 1)
    )
    assert second == pytest.approx(2 * first)
