"""The single step: the parts of a mini-batch's time, predicted and measured."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import ModuleType

import pytest

from alray.report.folder import read_run
from alray.report.run_page import RunReport
from alray.report.single_step import HEAD, StepParts, cells, predicted_parts, single_step
from alray.report.timeline import steady_timeline


def test_measured_parts_are_of_a_mini_batch_after_warm_up(given: ModuleType) -> None:
    plan = given.example_plan()
    records = [given.event("started", 0, 0.0), given.planned(plan, 0, 0.0)]
    for stage in (0, 1):
        records.append(given.staged(10, 1.0, stage, warm_up=True, waits=(9.0, 9.0, 9.0)))
        records.append(
            given.staged(20, 2.0, stage, waits=(0.01, 0.06, 0.03), step_times_s=[0.012 + 0.001 * stage] * 10)
        )
        waits = (0.03, 0.18 + 0.06 * stage, 0.0)
        records.append(given.staged(50, 3.0, stage, steps=30, waits=waits, step_times_s=[0.013] * 30))
    table = single_step(records, plan)
    assert [row.label for row in table.rows] == ["stage 0", "stage 1", "step"]
    first, second, step = (row.measured for row in table.rows)
    expected = StepParts(0.0, 0.001, 0.002, 0.001, send_wait_s=0.001, receive_wait_s=0.006, idle_s=0.002)
    assert dataclasses.astuple(first) == pytest.approx(dataclasses.astuple(expected))
    assert (second.receive_wait_s, second.idle_s) == pytest.approx((0.0075, 0.0005))
    assert (step.idle_s, step.not_computing_s, step.step_s) == pytest.approx((0.00125, 0.009, 0.013))
    assert table.step is table.rows[-1]


def test_without_a_measured_mini_batch_the_prediction_stands_alone(given: ModuleType) -> None:
    plan = given.example_plan()
    only_one = [given.event("started", 0, 0.0), given.planned(plan, 0, 0.0), given.staged(20, 2.0, 0)]
    assert [row.measured is None for row in single_step(only_one, plan).rows] == [False, True, True]
    assert [row.measured for row in single_step([], plan).rows] == [None] * 3
    assert cells(None) == ["–"] * len(HEAD)


def test_predicted_parts_of_a_streamed_step(given: ModuleType) -> None:
    # Stage 0 has two components (8 ms), stage 1 one (4 ms): it waits for the rest.
    plan = given.example_plan((2, 1))
    first, second = predicted_parts(plan)
    assert (first.forward_s, first.backward_s, first.update_s) == pytest.approx((0.002, 0.004, 0.002))
    assert (second.forward_s, second.backward_s, second.update_s) == pytest.approx((0.001, 0.002, 0.001))
    assert first.not_computing_s == pytest.approx(0.0, abs=2e-5)
    assert second.receive_wait_s == pytest.approx(0.004, abs=4e-5)
    assert second.step_s == pytest.approx(first.step_s, abs=1e-6)


@pytest.mark.parametrize("schedule", ["streamed", "overlapped", "parallel_backward", "sequential"])
def test_predicted_parts_add_up_to_the_predicted_step(given: ModuleType, schedule: str) -> None:
    plan = given.example_plan((1, 2, 1), schedule=schedule)
    plan = dataclasses.replace(plan, predicted_step_time_s=steady_timeline(plan)[0].step_time_s)
    parts = predicted_parts(plan)
    assert [part.step_s for part in parts] == pytest.approx([plan.predicted_step_time_s] * 3, rel=0.01)
    assert sum(part.forward_s + part.backward_s + part.update_s for part in parts) == pytest.approx(0.016)
    assert max(part.idle_s for part in parts) < 0.01 * plan.predicted_step_time_s


def test_micro_batches_of_all_virtual_stages_are_added_up(given: ModuleType) -> None:
    plan = given.example_plan((2, 2), schedule="zero_bubble", method="backpropagation")
    costs = dataclasses.replace(plan.costs, action_overhead_s=0.0)
    plan = dataclasses.replace(given.with_virtual_stages(plan), costs=costs)
    for part in predicted_parts(plan):
        assert (part.forward_s, part.backward_s, part.update_s) == pytest.approx((0.002, 0.004, 0.002))
        assert part.not_computing_s > 0


def test_what_shared_processors_do_for_others_is_idle(given: ModuleType) -> None:
    plan = given.example_plan()
    slow = dataclasses.replace(plan, predicted_step_time_s=plan.predicted_step_time_s + 0.1)
    for alone, sharing in zip(predicted_parts(plan), predicted_parts(slow), strict=True):
        assert sharing.idle_s - alone.idle_s == pytest.approx(0.1, abs=1e-4)
        assert sharing.forward_s == alone.forward_s


def test_getting_a_mini_batch_ready_is_no_forward(given: ModuleType) -> None:
    plan = given.example_plan()
    plan = dataclasses.replace(plan, costs=dataclasses.replace(plan.costs, data_s=0.003))
    first, second = predicted_parts(plan)
    assert (first.data_s, first.forward_s) == pytest.approx((0.003, 0.001))
    assert (second.data_s, second.forward_s) == pytest.approx((0.0, 0.001))


def test_the_table_as_json_and_on_the_page(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    run = read_run(given.write_run(tmp_path / "run", plan, given.example_records(plan)))
    value = json.loads(json.dumps(single_step(run.effective_records, run.plan).as_json()))
    assert (value["schedule"], [row["stage"] for row in value["rows"]]) == ("streamed", [0, 1, None])
    measured = value["rows"][-1]["measured"]
    assert measured["communication_s"] == pytest.approx(0.001)
    assert measured["step_s"] == pytest.approx(0.005)
    text = RunReport(run).page()
    assert '<h2 id="the-single-step">The single step</h2>' in text
    # data, F, B, U, communication, send wait, receive wait, idle, step
    row = "".join(
        f"<td class=number>{cell}</td>"
        for cell in ("0", "1.00", "2.00", "1.00", "1.00", "0.10", "0.60", "0.30", "5.00")
    )
    assert text.count(row) == 3
