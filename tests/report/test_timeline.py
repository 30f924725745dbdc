"""timeline.json against the trace format, and the slices it is made of."""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from alray.core.run_folder.records import Span
from alray.planning.schedules.actions import parse
from alray.report.folder import read_run
from alray.report.lanes import batch_of, category
from alray.report.timeline import measured_last, predicted_lanes, predicted_steady, write_timeline


def trace(folder: Path) -> dict[str, Any]:
    return json.loads(write_timeline(read_run(folder), folder / "timeline.json").read_text())


def names(events: list[dict[str, Any]], kind: str) -> list[str]:
    return [event["args"]["name"] for event in events if event["name"] == kind]


def test_the_trace_format(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    events = trace(given.write_run(tmp_path / "run", plan, given.example_records(plan)))["traceEvents"]
    assert names(events, "process_name") == ["predicted", "measured"]
    assert names(events, "thread_name") == ["stage 0", "stage 1"] * 2
    # The prediction is drawn under what was measured.
    places = [(event["pid"], event["args"]["sort_index"]) for event in events if event["name"] == "process_sort_index"]
    assert places == [(1, 2), (2, 1)]
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["cat"] for event in slices} == {"compute", "message", "receive_wait"}
    for event in slices:
        assert set(event) - {"args"} == {"ph", "name", "cat", "pid", "tid", "ts", "dur"}
        assert event["ts"] >= 0 and event["dur"] > 0
    for lane in {(event["pid"], event["tid"]) for event in slices}:
        own = [event for event in slices if (event["pid"], event["tid"]) == lane]
        # In order, and never two at once (to a nanosecond: the rounding of times).
        assert all(b["ts"] >= a["ts"] + a["dur"] - 2e-3 for a, b in pairwise(own))


def test_measured_times_are_microseconds_from_the_first_slice(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    records = [given.staged(10, 1.0, 0, spans=[Span(action="0F3", start_s=2.5, end_s=2.501)])]
    value = trace(given.write_run(tmp_path / "run", plan, records))
    (slice_,) = [event for event in value["traceEvents"] if event["pid"] == 2 and event["ph"] == "X"]
    assert slice_ == {
        **{"ph": "X", "name": "0F3", "cat": "compute", "pid": 2, "tid": 0, "ts": 0.0},
        **{"dur": pytest.approx(1000.0), "args": {"mini_batch": 3}},
    }
    assert value["otherData"]["began_s"] == {"measured": 2.5}


def test_each_attempt_is_a_process(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    records = []
    for start, kind in ((0, "started"), (10, "resumed")):
        spans = [Span(action=f"0F{start}", start_s=1.0, end_s=2.0)]
        records += [given.event(kind, start, 0.0), given.staged(start + 10, 1.0, 0, spans=spans, replica=1)]
    events = trace(given.write_run(tmp_path / "run", plan, records))["traceEvents"]
    assert names(events, "process_name") == ["predicted", "measured, attempt 1", "measured, attempt 2"]
    assert names(events, "thread_name")[-1] == "stage 0, replica 1"


def test_a_run_without_any_record_still_has_its_prediction(given: ModuleType, tmp_path: Path) -> None:
    events = trace(given.write_run(tmp_path / "run", given.example_plan(), []))["traceEvents"]
    assert names(events, "process_name") == ["predicted"]


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
