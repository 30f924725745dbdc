"""Pipelines that other people measured: which row sets the number, and how a timeline's order is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.published import AFTER_GRADIENTS, WITH_CONSTANT, Accuracy, predictions, ranks, timelines, with_constant

GIVEN = (
    "device: A, library: Megatron-LM, schedule: gpipe, stages: 2, width: 4, sequence: 4, precision: fp32, "
    "recompute: false, micro_batch_size: 1, micro_batches: 4, message_bytes: 0, gbit: 1, ms: 0"
)
TABLES = f"""
tables:
- {{id: one, given: {{{GIVEN}}}, columns: [layers_total, measured_s], rows: [[2, 15.0], [4, 33.0]]}}
- {{id: two, calibrate_from: one, given: {{{GIVEN}}}, columns: [layers_total, measured_s], rows: [[2, 10.0]]}}
- {{id: three, given: {{{GIVEN}, lacks: much}}, columns: [layers_total, measured_s], rows: [[2, 10.0]]}}
"""
MEETING = f"""
tables:
- {{id: a, source: results/gpt3_small.md, given: {{{GIVEN}}}, columns: [ms, measured_s], rows: [[0, 1.0], [100, 1.0]]}}
- {{id: b, source: results/gpt3_xl.md, given: {{{GIVEN}}}, columns: [ms, measured_s], rows: [[0, 1.0], [100, 1.0]]}}
""".replace("Megatron-LM", "own code over NCCL").replace("ms: 0", "layers_total: 2")
UPDATES = "ds3lab.xl8.fp16.batch"
TIMELINE = """
columns: [stage, forward_s, recompute_s, backward_s, first_forward_s, first_backward_s, last_backward_end_s, s, order]
timeline:
- [0, 1.0, 1.0, 2.0, 0.0, 6.5, 11.5, 0, F2 b2]
- [1, 1.0, 0.0, 2.0, 1.5, 2.5, 7.5, 0, "[F1 B1]2"]
"""


def test_the_first_row_sets_the_number_of_its_table(tmp_path: Path) -> None:
    """Five micro-batches' time on two stages: 15 s for one layer each, so 30 s for two."""
    (tmp_path / "runs.yaml").write_text(TABLES, encoding="utf-8")
    found = predictions(tmp_path)
    assert [(each.table, each.counts) for each in found] == [("one", False), ("one", True), ("two", True)]
    assert [each.predicted_s for each in found] == pytest.approx([15.0, 30.0, 15.0], rel=1e-5)
    assert ranks(found) == (1, 1)
    accuracy = Accuracy.of([each.ratio for each in found if each.counts])
    assert (accuracy.rows, accuracy.worst) == (2, pytest.approx(0.5, rel=1e-4))


def test_only_the_rows_that_set_a_number_are_left_out(tmp_path: Path) -> None:
    """The first row sets the layer, and both at 10 Gbit/s the seconds of an update; the other two are predictions."""
    runs = "tables:\n" + f"- {{id: {UPDATES}, given: {{{GIVEN}, layers_total: 2}}, columns: [gbit, measured_s], rows: "
    (tmp_path / "runs.yaml").write_text(f"{runs}[[10, 15.0], [10, 15.0], [1, 15.0], [2, 15.0]]}}\n", encoding="utf-8")
    assert [each.counts for each in predictions(tmp_path)] == [False, False, True, True]


def test_a_layer_of_another_table_leaves_a_constant_to_set(tmp_path: Path) -> None:
    """Five micro-batches' time: 15 s for one layer of 1 s and its backward, 5 more for a constant of 1 s each."""
    ((name, layer_of),) = WITH_CONSTANT.items()
    runs = TABLES.replace("id: one", f"id: {layer_of}").replace("id: two, calibrate_from: one", f"id: {name}")
    (tmp_path / "runs.yaml").write_text(runs.replace("[[2, 10.0]]", "[[2, 20.0], [4, 70.0]]"), encoding="utf-8")
    (found,) = with_constant(tmp_path)
    assert (found.layer_s, found.constant_s) == pytest.approx((1.0, 1.0), rel=1e-5)
    assert found.ratios == pytest.approx([35.0 / 70.0], rel=1e-5)


def test_processes_that_meet_wait_for_the_latency(tmp_path: Path) -> None:
    """Messages are empty here, and each takes the latency of 0.1 s, up and down. A barrier of two is one more message;
    later code has a second one in the end."""
    (tmp_path / "runs.yaml").write_text(MEETING, encoding="utf-8")
    old, new = (each.predicted_s for each in predictions(tmp_path) if each.counts)
    assert (old, new) == pytest.approx((1.3, 1.4), rel=1e-4)


def test_a_timeline_has_one_number(tmp_path: Path) -> None:
    """A message takes 0.5 s, by the first forward of stage 1. Its gradient comes down at 5.0 in place of 6.5."""
    (tmp_path / "runs.yaml").write_text(TIMELINE, encoding="utf-8")
    (timeline,) = timelines(tmp_path)
    assert timeline.message_s == pytest.approx(0.5)
    assert timeline.first_backward == pytest.approx([5.0 / 6.5, 1.0])
    assert timeline.last_end == pytest.approx([10.0 / 11.5, 1.0])


def test_gradients_leave_before_the_backward_ends(tmp_path: Path) -> None:
    (tmp_path / "runs.yaml").write_text(f"source: microsoft/varuna 1 logs\n{TIMELINE}", encoding="utf-8")
    (timeline,) = timelines(tmp_path)
    earlier_s = AFTER_GRADIENTS["microsoft/varuna"] / 2
    assert timeline.first_backward == pytest.approx([(5.0 - earlier_s) / 6.5, 1.0])
    assert timeline.last_end[1] == pytest.approx(1.0), "its own backward takes as long"
