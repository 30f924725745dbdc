"""The window of time that a chart shows: the same for all stages, with the work that records hold."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from alray.core.run_folder.records import StageRecord, read
from alray.planning.prediction.timeline import TimedAction
from alray.report.lanes import WAITS, Lane, View, steady

Intervals = list[list[tuple[str, float, float]]]
"""For each stage: name, start and end of what it did, in seconds from the start of the run."""


def of_records(run_dir: Path) -> Intervals:
    records = [record for record in read(run_dir / "records.jsonl") if isinstance(record, StageRecord)]
    return [
        [
            (span.action, span.start_s, span.end_s)
            for record in records
            if record.stage == stage
            for span in record.spans
        ]
        for stage in (0, 1)
    ]


def of_page(run_dir: Path) -> tuple[Intervals, float, float]:
    """The measured slots of the figure, in seconds from the start of the run; and the window that the page shows."""
    page = (run_dir / "report.html").read_text()
    said = re.search(r"From ([\d.]+) s to ([\d.]+) s after the start of the run, after warm-up", page)
    assert said is not None
    start_s, end_s = map(float, said.groups())
    (drawing,) = re.findall(r'data-name="schedule".*?<script type="application/json">(.*?)</script>', page, re.DOTALL)
    rows = [row for row in json.loads(drawing)["datasets"]["rows"] if row["series"] != "waiting"]
    assert {row["kind"] for row in rows} == {"predicted", "measured"}
    found: Intervals = [[], []]
    for row in rows:
        if row["kind"] == "measured":
            at = (row["action"], start_s + row["start_ms"] / 1e3, start_s + row["end_ms"] / 1e3)
            found[int(row["lane"].removeprefix("measured, stage "))].append(at)
    return found, start_s, end_s


def busy(intervals: Intervals, start_s: float, end_s: float) -> Intervals:
    """The work of each stage that lies in a window."""
    return [
        [
            (name, max(begins, start_s), min(ends, end_s))
            for name, begins, ends in sorted(of_stage, key=lambda interval: interval[1])
            if name not in WAITS and ends > start_s and begins < end_s
        ]
        for of_stage in intervals
    ]


@pytest.mark.full
def test_the_page_and_the_records_show_the_same_work(run_dir: Path) -> None:
    drawn, start_s, end_s = of_page(run_dir)
    exact_to = 0.001  # the page gives the window in milliseconds
    recorded = busy(of_records(run_dir), start_s, end_s)
    for of_records_, of_page_ in zip(recorded, drawn, strict=True):
        assert len(of_page_) > 15, "several mini-batches of each stage"
        whole = {
            interval for interval in of_records_ if interval[1] > start_s + exact_to and interval[2] < end_s - exact_to
        }
        boxes = {name: (begins, ends) for name, begins, ends in of_page_}
        for name, begins, ends in whole:
            assert boxes[name] == pytest.approx((begins, ends), abs=exact_to)


def lane(stage: int, batches: list[int], start_s: float, seconds: float = 1.0) -> Lane:
    starts = [start_s + seconds * place for place in range(len(batches))]
    bars = [TimedAction(stage, f"{stage}F{batch}", at, at + seconds) for at, batch in zip(starts, batches, strict=True)]
    return Lane(stage, 0, tuple(bars))


def test_a_window_is_the_same_for_all_stages_and_all_are_past_their_warm_up() -> None:
    """Stage 0 is ahead of stage 1 by four mini-batches."""
    lanes = [lane(0, list(range(40)), 100.0), lane(1, list(range(40)), 104.0)]
    view, batches = steady(lanes, 10, num_batches=6)
    assert batches == range(14, 20)
    assert (view.start_s, view.end_s) == (114.0, 120.0)
    for stage, own in enumerate(lanes):
        assert view.traced(own) == [(0.0, 6.0)]
        assert [bar.action for bar in view.inside(own)] == [f"{stage}F{batch - 4 * stage}" for batch in batches]


def test_the_end_of_what_was_traced_is_the_end_of_a_row() -> None:
    lanes = [lane(0, [0, 1, 2], 0.0), lane(1, [0, 1, 2], 2.0)]
    view, batches = steady(lanes, 10, num_batches=6)
    assert batches == range(3)
    assert (view.start_s, view.end_s) == (0.0, 5.0)
    assert [view.traced(own) for own in lanes] == [[(0.0, 3.0)], [(2.0, 5.0)]]


def test_where_nothing_was_traced_no_stage_waits() -> None:
    bars = [*lane(0, [3, 4], 0.0).bars, *lane(0, [8, 9], 5.0).bars]
    wait = TimedAction(0, "receive_wait", 4.5, 5.0)
    evaluation = TimedAction(0, "0E0", 2.0, 2.2)
    traced = Lane(0, 0, tuple(sorted([*bars, wait, evaluation], key=lambda bar: bar.start_s)))
    (first, second) = traced.stretches
    assert first == (0.0, 2.0) and second[1] == 7.0
    assert View([traced], 0.0, 7.0).traced(traced) == traced.stretches
    assert all(before[1] <= after[0] for before, after in pairwise(traced.stretches))
