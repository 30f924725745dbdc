"""The figures of a run against figures worked out by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import Best, CheckpointRecord, Failure, Scores, Summary, Writer
from alray.core.storage.json_file import read_json
from alray.planning.prediction.costs import Link
from alray.report.summary import figures_of, summarise, write_summary

FACTS = {
    "version": "0.1.0",
    "name": "example",
    "status": "finished",
    "run_dir": "runs/example",
    "seed": 0,
    "threads": 1,
    "engine": "inline",
    "duration_s": 3.0,
    "weights_sha256": "ab" * 32,
    "parameters": 2000,
}


def test_figures_of_a_whole_run(given: ModuleType) -> None:
    plan = given.example_plan()
    summary = summarise(given.example_records(plan), plan, **FACTS)
    assert summary.step_time_s == 0.005
    assert summary.samples_per_s == pytest.approx(64 / 0.005)
    # Each stage record: 40 ms computing, 1 + 6 + 3 ms waiting.
    assert summary.bubble == pytest.approx(0.2)
    assert summary.bytes_sent == {"0->1": 40 * 20_000}
    assert (summary.steps, summary.epochs, summary.samples) == (40, 4.0, 40 * 64)
    assert summary.accuracy == Scores(train=0.99, validation=0.91, test=0.90)
    assert summary.best == Best(step=40, validation=0.91, test=0.90)
    assert [entry.depth for entry in summary.accuracy_per_depth] == [1, 2]
    assert summary.peak_memory_bytes == [1_000_000, 1_000_000]
    assert (summary.status, summary.seed, summary.partition) == ("finished", 0, [1, 1])


def test_step_time_is_the_median_of_the_last_stage_after_warm_up(given: ModuleType) -> None:
    records = [
        given.event("started", 0, 0.0),
        given.staged(2, 1.0, 1, steps=2, warm_up=True, step_times_s=[9.0, 9.0]),
        given.staged(5, 2.0, 0, steps=3, step_times_s=[7.0, 7.0, 7.0]),
        given.staged(5, 2.0, 1, steps=3, step_times_s=[0.1, 0.2, 5.0]),
    ]
    figures = figures_of(records, given.example_plan())
    assert figures.step_time_s == 0.2
    assert figures.step_time_quartiles_s == [pytest.approx(0.15), pytest.approx(2.6)]


def test_stages_that_take_turns_have_no_bubble(given: ModuleType) -> None:
    plan = replace(given.example_plan(), in_turns=True, predicted_bubble=None)
    figures = figures_of(given.example_records(plan), plan)
    assert (figures.bubble, figures.predicted_bubble) == (None, None)
    assert figures.step_time_s == 0.005


def test_what_was_not_measured_is_none(given: ModuleType) -> None:
    plan = given.example_plan()
    figures = figures_of([given.event("started", 0, 0.0)], plan)
    assert (figures.step_time_s, figures.samples_per_s, figures.bubble) == (None, None, None)
    assert figures.scores == Scores()
    assert (figures.best, figures.scores_per_depth) == (None, [])
    assert figures.peak_memory_bytes == [None, None]
    only_warm_up = figures_of([given.staged(10, 1.0, 1, warm_up=True)], plan)
    assert (only_warm_up.step_time_s, only_warm_up.bubble) == (None, None)
    assert only_warm_up.peak_memory_bytes == [None, 1_000_000]


@pytest.mark.parametrize("name", ["accuracy", "r2", "nats_per_token"])
def test_the_metric_names_its_keys(given: ModuleType, name: str) -> None:
    """With an evaluation, and before the first one. The fields have one name in Python, and that of the file too."""
    plan = given.example_plan()
    record = given.evaluated(10, 1.0, 0.9, 0.8).model_copy(update={"metric": name})
    assert figures_of([given.step(10, 1.0)], plan, METRICS[name]).metric == name
    summary = summarise([record], plan, **FACTS)
    written = json.loads(summary.model_dump_json())
    assert written[name] == {"train": 0.99, "validation": 0.9, "test": 0.8}
    assert [each["depth"] for each in written[f"{name}_per_depth"]] == [each.depth for each in record.per_depth]
    assert not ({"scores", "scores_per_depth", "accuracy", "r2"} - {name}) & set(written)
    assert Summary.model_validate(written) == summary
    assert getattr(summary, name) == summary.scores == Scores(train=0.99, validation=0.9, test=0.8)
    with pytest.raises(AttributeError, match=f"no `perplexity`.*`summary.{name}`"):
        assert summary.perplexity


def test_the_file_of_a_metric_that_is_not_finite_is_json(given: ModuleType, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "records.jsonl")
    writer.write(given.evaluated(10, 1.0, math.nan, -math.inf).model_copy(update={"metric": "r2"}))
    writer.close()
    spec = SimpleNamespace(
        name="a", seed=0, task=SimpleNamespace(measures=METRICS["r2"]), resources=SimpleNamespace(threads=1)
    )
    workload: Any = SimpleNamespace(spec=spec, data=SimpleNamespace(classes=(), chance=None))
    write_summary(tmp_path, workload, given.example_plan(), "inline", "finished", 0, duration_s=1.0, page=None)

    def refused(constant: str) -> None:
        pytest.fail(f"no JSON: {constant}")

    json.loads((tmp_path / "summary.json").read_text(), parse_constant=refused)
    found = read_json(tmp_path / "summary.json", Summary).scores
    assert found.test == -math.inf and found.validation is not None and math.isnan(found.validation)


def test_no_metric_has_the_name_of_another_field() -> None:
    assert not Summary.model_fields.keys() & {f"{name}{end}" for name in METRICS for end in ("", "_per_depth")}


def test_accuracy_is_of_the_final_weights_only(given: ModuleType) -> None:
    records = [given.evaluated(10, 1.0, 0.9, 0.8), given.step(13, 1.2)]
    figures = figures_of(records, given.example_plan())
    assert figures.scores == Scores()
    assert figures.scores_per_depth == []
    assert figures.best == Best(step=10, validation=0.9, test=0.8)


@pytest.mark.parametrize("ended", [("interrupted",), ("failed",), ("failure", "failed")])
def test_a_run_that_ended_before_it_could_save_has_the_figures_of_its_last_checkpoint(
    given: ModuleType, ended: tuple[str, ...]
) -> None:
    """Ctrl-C twice, or a failure: the weights left are those of mini-batch 10, and a resume goes on from there."""
    plan = given.example_plan()
    saved = CheckpointRecord(**given.at(10, 1.1), path="checkpoints/step-00000010", bytes=1, duration_s=0.1)
    records = [
        given.event("started", 0, 0.0),
        given.staged(10, 1.0, 0, bytes_sent={"0->1": 100}),
        given.evaluated(10, 1.0, 0.9, 0.8),
        saved,
        given.staged(13, 1.3, 0, steps=3, bytes_sent={"0->1": 130}),
        given.step(14, 1.4),
    ]
    end = [given.event(event, 14, 1.5) for event in ended]
    kept = figures_of([*records, *end], plan)
    assert (kept.steps, kept.epochs, kept.samples) == (10, 1.0, 10 * 64)
    assert (kept.scores, kept.bytes_sent) == (Scores(train=0.99, validation=0.9, test=0.8), {"0->1": 100})
    going_on = figures_of(records, plan)
    assert (going_on.steps, going_on.scores, going_on.bytes_sent) == (14, Scores(), {"0->1": 130})
    resumed = [*records, *end, given.event("resumed", 10, 2.0), given.step(12, 2.2)]
    assert figures_of(resumed, plan).steps == 12
    assert figures_of([given.step(2, 0.1), *end], plan).steps == 0


def test_best_is_chosen_on_validation_and_the_earliest_of_equals(given: ModuleType) -> None:
    records = [
        given.evaluated(10, 1.0, 0.90, 0.80),
        given.evaluated(20, 2.0, 0.90, 0.99),
        given.evaluated(30, 3.0, 0.85, 0.99),
    ]
    assert figures_of(records, given.example_plan()).best == Best(step=10, validation=0.9, test=0.8)


def test_without_a_validation_set_there_is_no_best(given: ModuleType) -> None:
    figures = figures_of([given.evaluated(10, 1.0, None, 0.8)], given.example_plan())
    assert figures.best is None
    assert figures.scores.test == 0.8


def test_a_failure_and_a_resume(given: ModuleType) -> None:
    plan = given.example_plan()
    records = [
        given.event("started", 0, 0.0),
        given.planned(plan, 0, 0.0),
        given.staged(10, 1.0, 0, bytes_sent={"0->1": 100}),
        given.staged(10, 1.0, 1, step_times_s=[0.01] * 10),
        given.staged(20, 2.0, 0, bytes_sent={"0->1": 200}, peak=3_000_000),
        given.staged(20, 2.0, 1, step_times_s=[5.0] * 100),
        given.evaluated(20, 2.1, 1.0, 1.0),
        given.event("failure", 25, 2.5, "stage 1 died", stage=1),
        given.event("resumed", 10, 2.6),
        given.planned(plan, 10, 2.6),
        given.staged(20, 3.0, 0, bytes_sent={"0->1": 150}),
        given.staged(20, 3.0, 1, step_times_s=[0.02] * 11),
    ]
    figures = figures_of(records, plan)
    assert figures.bytes_sent == {"0->1": 250}  # without lost work
    assert figures.step_time_s == 0.02  # lost work is not timed
    assert figures.best is None  # the evaluation at step 20 was lost
    assert figures.steps == 20
    assert figures.peak_memory_bytes == [3_000_000, 1_000_000]
    assert figures.failures == [Failure(step=25, stage=1, message="stage 1 died")]


def test_times_of_another_plan_are_left_out(given: ModuleType) -> None:
    alone, plan = given.example_plan((2,)), given.example_plan((1, 1))
    records = [
        given.planned(alone, 0, 0.0),
        given.event("started", 0, 0.0),
        given.staged(10, 1.0, 0, step_times_s=[1.0] * 50, peak=9_000_000),
        given.planned(plan, 10, 2.0),
        given.event("resumed", 10, 2.0),
        given.staged(20, 3.0, 0, bytes_sent={"0->1": 7}),
        given.staged(20, 3.0, 1, step_times_s=[0.5] * 10),
    ]
    figures = figures_of(records, plan)
    assert figures.step_time_s == 0.5
    assert figures.peak_memory_bytes == [1_000_000, 1_000_000]


@pytest.mark.parametrize(
    "before",
    [
        {"recomputes": True},
        {"links": [{"latency_s": 0.1, "up_s_per_byte": 1e-6, "down_s_per_byte": 1e-6}, None]},
        {"edges": [{"edge": "0->1", "bytes_per_step": 7}]},
        {"costs": {"precision": "bf16"}},
        {"costs": {"batch_size": 32}},
    ],
)
def test_times_of_the_same_stages_with_other_work_are_left_out(given: ModuleType, before: dict[str, Any]) -> None:
    plan = given.example_plan((1, 1))
    plan = replace(plan, costs=replace(plan.costs, precision="float32"))
    first = given.planned(plan, 0, 0.0)
    costs = first.plan["costs"] | before.get("costs", {})
    records = [
        first.model_copy(update={"plan": first.plan | before | {"costs": costs}}),
        given.event("started", 0, 0.0),
        given.staged(10, 1.0, 1, step_times_s=[1.0] * 50, peak=9_000_000),
        given.planned(plan, 10, 2.0),
        given.event("resumed", 10, 2.0),
        given.staged(20, 3.0, 1, step_times_s=[0.5] * 10),
    ]
    figures = figures_of(records, plan)
    assert figures.step_time_s == 0.5
    assert figures.peak_memory_bytes[1] == 1_000_000


def test_links_between_nodes_are_measured_anew_and_are_the_same(given: ModuleType) -> None:
    plan = replace(given.example_plan((1, 1)), nodes=("a", "b"), links=(Link(1e-4, 1e-9, 1e-9), None))
    before = replace(plan, links=(Link(1.1e-4, 1.2e-9, 1e-9), None))
    records = [
        given.event("started", 0, 0.0),
        given.planned(before, 0, 0.0),
        given.staged(10, 1.0, 1, step_times_s=[1.0] * 10),
        given.event("resumed", 10, 2.0),
        given.planned(plan, 10, 2.0),
        given.staged(20, 3.0, 1, step_times_s=[0.5] * 5),
    ]
    assert figures_of(records, plan).step_time_s == 1.0, "of both"


def test_every_attempt_keeps_its_figures(given: ModuleType) -> None:
    """The second attempt was too short to be measured."""
    alone, plan = given.example_plan((2,)), given.example_plan((1, 1))
    records = [
        given.event("started", 0, 0.0),
        given.planned(alone, 0, 0.0, engine="ray"),
        given.staged(10, 1.0, 0, step_times_s=[1.0] * 50, peak=9_000_000),
        given.staged(20, 2.0, 0, step_times_s=[1.0] * 50, peak=9_000_000),
        given.event("resumed", 15, 2.5),
        given.planned(plan, 15, 2.5, engine="inline"),
        given.staged(20, 3.0, 0, warm_up=True, peak=None),
        given.staged(20, 3.0, 1, warm_up=True, peak=None),
    ]
    figures = figures_of(records, plan)
    assert (figures.stages, figures.steps) == (2, 20)
    assert (figures.step_time_s, figures.predicted_step_time_s) == (None, plan.predicted_step_time_s)
    assert figures.samples_per_s is None and figures.bubble is None
    first, second = figures.attempts
    assert (first.began_after, first.ended_after, first.engine, first.partition) == (0, 10, "ray", [2])
    assert (first.step_time_s, first.samples_per_s, first.peak_memory_bytes) == (1.0, 64.0, [9_000_000])
    assert (second.began_after, second.ended_after, second.engine, second.partition) == (15, 20, "inline", [1, 1])
    assert (second.step_time_s, second.bubble, second.peak_memory_bytes) == (None, None, [None, None])


def test_replicas_add_up_and_edges_are_in_order(given: ModuleType) -> None:
    edges = {"10->11": 1, "2->3": 5}
    records = [given.staged(10, 1.0, 0, replica=replica, bytes_sent=edges) for replica in (0, 1)]
    assert list(figures_of(records, given.example_plan()).bytes_sent.items()) == [("2->3", 10), ("10->11", 2)]


def test_a_run_that_gave_up_tells_its_failure_once(given: ModuleType) -> None:
    plan = given.example_plan()
    gave_up = [given.event("failure", 5, 1.0, "died"), given.event("failed", 5, 1.0, "gave up")]
    assert [failure.message for failure in figures_of(gave_up, plan).failures] == ["died"]
    alone = [given.event("failed", 5, 1.0, "loss is not finite", stage=0)]
    assert figures_of(alone, plan).failures == [Failure(step=5, stage=0, message="loss is not finite")]
