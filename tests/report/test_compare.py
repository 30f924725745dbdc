"""Comparisons: which runs share a row, which evaluation is chosen, and how missing figures are shown."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from alray.config.loading.yaml_text import write_yaml
from alray.config.study.section import Study
from alray.core.errors import CheckpointError, RequestError
from alray.core.run_folder.records import (
    DepthScores,
    EvaluationRecord,
    Writer,
    effective,
    read,
    read_summary,
)
from alray.report.compare import ComparedRuns, compare_runs
from alray.report.compare_page import ComparisonReport, curve_rows, depth_rows
from alray.report.compare_tables import cost_table, depth_table, score_table
from alray.report.figure import write_exhibits
from alray.report.folder import read_run
from alray.report.make import make_report
from alray.report.run_page import RunReport
from alray.report.spread import Spread, spread
from alray.report.summary import summarise
from alray.studies.figures.training import race
from alray.studies.records import TrialRecord
from alray.studies.results import Results
from alray.studies.trial import first_reached

IMAGES = {"source": "digits", "batch_size": 64}
AL = [{"along_parameters": 800, "turn_parameters": 100}] * 2
SCPL = [{"along_parameters": 600, "turn_parameters": 0}, {"along_parameters": 600, "turn_parameters": 400}]
"""Of the two components: what every route uses, and what the one that ends there uses besides."""

HOSTILE = "<script>alert(1)</script><i>"

Add = Callable[..., Path]


@pytest.fixture
def add(given: ModuleType, tmp_path: Path) -> Add:
    """`add(folder, ...)`: a run folder of two components; (validation, test) of each evaluation, an epoch apart."""

    def write(
        folder: str,
        *accuracies: tuple[float | None, float],
        seed: int = 0,
        status: str | None = "finished",
        method: str = "associated_learning",
        data: dict[str, Any] = IMAGES,
        blocks: tuple[str, str] = ("embedding", "vgg"),
        failure: str = "stage 1 died",
        engine: str = "ray",
        start_s: float = 0.0,
        metric: str = "accuracy",
        sha256: str | None = None,
        **spec: Any,
    ) -> Path:
        plan = given.example_plan((1, 1), method=method)
        of_method = AL if method == "associated_learning" else SCPL
        components = tuple(
            replace(component, **counts) for component, counts in zip(plan.costs.components, of_method, strict=True)
        )
        plan = replace(plan, costs=replace(plan.costs, components=components))
        records = [given.event("started", 0, 0.0), given.planned(plan, 0, 0.01, engine=engine)]
        records.append(given.step(1, start_s))
        for epoch, (validation, test) in enumerate(accuracies, start=1):
            step = epoch * given.PER_EPOCH
            records.append(given.step(step, start_s + epoch * 2.0 + seed - 0.1))
            times = {"step_times_s": [start_s + 1.0, *[0.2 + 0.1 * seed] * 9], "after_cut": [step - 9]}
            records += [
                given.staged(step, start_s + epoch * 2.0, stage, peak=1000 * (stage + 1), **times) for stage in range(2)
            ]
            depths = [
                DepthScores(depth=1, validation=0.25 * epoch, test=0.2 * epoch),
                DepthScores(depth=2, validation=validation, test=test),
            ]
            if method != "associated_learning":
                depths = depths[1:]
            fields = {"validation": validation, "test": test, "per_depth": depths, "duration_s": 0.1}
            fields["metric"] = metric
            records.append(EvaluationRecord(**given.at(step, start_s + epoch * 2.0 + seed), **fields))
        summary = None
        if status is not None:
            if status == "failed":
                records.append(given.event("failed", 20, 9.0, failure))
            facts = {"version": "0", "name": "net", "run_dir": folder, "seed": seed, "threads": 1, "engine": engine}
            summary = summarise(
                records, plan, status=status, duration_s=10.0 + seed, weights_sha256=sha256, parameters=2000, **facts
            )
        path = given.write_run(tmp_path / folder, plan, records, summary=summary)
        document = {
            "name": "net",
            "seed": seed,
            "data": data,
            "model": {"components": [{"block": block, "repeat": 1} for block in blocks]},
            "task": {"kind": "classification"},
            "method": {"kind": method},
            "pipeline": {"schedule": "auto"},
            **spec,
        }
        (path / "spec.yaml").write_text(write_yaml(document))
        return path

    return write


def test_runs_that_differ_by_their_seed_are_one_row(add: Add) -> None:
    runs = [
        add("a", (0.5, 0.9), (0.8, 0.6), (0.7, 0.7), seed=0),
        add("b", (0.9, 0.8), seed=1),
        add("c", (0.7, 0.7), seed=2),
        add("d", (0.4, 0.4), seed=0, method="backpropagation"),
    ]
    comparison = compare_runs(runs)
    first, second = comparison.groups
    assert [run.seed for run in first.runs] == [0, 1, 2]
    # Chosen on validation: 0.8, 0.9 and 0.7, whatever the test accuracies are.
    assert first.score("test") == Spread(pytest.approx(0.7), pytest.approx(0.1), 3)
    assert first.score("test", 1) == Spread(pytest.approx(0.8 / 3), pytest.approx(0.1155, abs=1e-4), 3)
    assert second.score("test") == Spread(0.4, None, 1)
    assert [group.label for group in comparison.groups] == ["net, a", "net, d"]
    assert comparison.differences == {"method.kind": ("associated_learning", "backpropagation")}
    assert score_table(comparison).rows[0][3:] == (
        *("ray", "0 1 2", "finished", "10 to 20", "0.8000 ± 0.1000", "0.7000 ± 0.1000"),
    )
    assert depth_table(comparison).rows == (
        ("net, a", "0.2667 ± 0.1155", "0.7000 ± 0.1000"),
        ("net, d", "–", "0.4000"),
    )


def test_runs_of_an_error_are_compared_by_the_lowest(add: Add) -> None:
    of_error = {"metric": "mean_squared_error", "task": {"kind": "regression", "metric": "mean_squared_error"}}
    runs = [
        add("a", (0.9, 0.8), (0.2, 0.3), (0.5, 0.1), **of_error),
        add("b", (0.4, 0.6), method="backpropagation", **of_error),
    ]
    comparison = compare_runs(runs)
    assert comparison.metric.name == "mean_squared_error"
    # Chosen on validation: the error 0.2, whatever the test errors are.
    assert [group.score("test") for group in comparison.groups] == [Spread(0.3, None, 1), Spread(0.6, None, 1)]
    page = re.sub(r"<script>.*?</script>", "", ComparisonReport(comparison).page(), flags=re.DOTALL)
    assert "Mean squared error against samples" in page
    assert "accuracy" not in page.lower()
    with pytest.raises(RequestError, match="different metrics"):
        compare_runs([*runs, add("c", (0.5, 0.5))])


def test_effective_parameters_are_those_inference_uses(add: Add) -> None:
    runs = [
        add("al", (0.5, 0.5)),
        add("scpl", (0.5, 0.5), method="supervised_contrastive"),
    ]
    al, scpl = (group.runs[0] for group in compare_runs(runs).groups)
    # f and h of both components and the last bridge; f of both and the head.
    assert (al.effective_parameters, al.affiliate_parameters) == (2 * 800 + 100, 2000 - 1700)
    assert (scpl.effective_parameters, scpl.affiliate_parameters) == (1600, 400)
    assert cost_table(compare_runs(runs)).rows[0][1:4] == ("1,700", "300", "2.00 kB")


def test_a_run_that_did_not_end_is_shown_and_not_counted(add: Add) -> None:
    runs = [
        add("a", (0.8, 0.8), seed=0),
        add("b", (0.2, 0.2), seed=1, status="failed"),
        add("c", (0.1, 0.1), seed=2, status=None),
        add("d", seed=0, status=None, name="other"),
    ]
    comparison = compare_runs(runs)
    first, second = comparison.groups
    assert (first.status, first.score("test")) == ("1 failed, 1 finished, 1 unfinished", Spread(0.8, None, 1))
    assert (second.status, second.score("test"), second.label) == ("unfinished", None, "other")
    assert score_table(comparison).rows[1][-3:] == ("–", "–", "–")


@pytest.mark.parametrize(
    ("task", "metric"),
    [({"kind": "regression", "metric": "r2"}, "r2"), ({"kind": "multi_label"}, "mean_average_precision")],
)
def test_a_run_before_its_first_evaluation_names_the_metric_of_its_task(
    add: Add, task: dict[str, str], metric: str
) -> None:
    run = add("run", status=None, task=task)
    comparison = compare_runs([run])
    assert comparison.metric.name == metric and metric in comparison.groups[0].first.as_json()
    page = make_report(run).read_text(encoding="utf-8")
    assert f"Test {comparison.metric.title}" in page and "Test accuracy" not in page
    assert f"{comparison.metric.heading}</h2>" in page


def test_curves_are_means_where_every_run_was_evaluated(add: Add) -> None:
    runs = [add("a", (0.5, 0.1), (0.7, 0.2)), add("b", (0.7, 0.3), seed=1, start_s=70.0), add("c", (0.6, 0.2), seed=2)]
    comparison = compare_runs(runs)
    # Nine mini-batches of 0.2 s, of 0.3 s and of 0.4 s; the first one counts as their mean.
    (row,) = curve_rows(comparison)
    assert [row[key] for key in ("step", "samples", "seconds")] == [10, 640, pytest.approx(3.0)]
    assert (row["accuracy"], row["low"], row["high"], row["seeds"]) == (pytest.approx(0.6), 0.5, 0.7, 3)
    depths = list(depth_rows(comparison))
    assert [row["depth"] for row in depths] == [1, 2]
    assert depths[1]["accuracy"] == pytest.approx(0.7 / 3)


def test_two_runs_show_no_spread(add: Add) -> None:
    """Neither in a table nor as a band; a third run that agrees with them is a band of no width."""
    runs = [add("a", (0.5, 0.1)), add("b", (0.5, 0.1), seed=1)]
    comparison = compare_runs(runs)
    assert score_table(comparison).rows[0][-2:] == ("0.5000", "0.1000")
    assert not any({"low", "high"} & set(row) for row in (*curve_rows(comparison), *depth_rows(comparison)))
    comparison = compare_runs([*runs, add("c", (0.5, 0.1), seed=2)])
    assert score_table(comparison).rows[0][-2:] == ("0.5000", "0.1000"), "± 0 says nothing"
    assert [(row["low"], row["high"]) for row in curve_rows(comparison)] == [(0.5, 0.5)]


def test_runs_that_end_in_the_same_weights_have_one_curve(add: Add) -> None:
    stages = {1: "a" * 64, 2: "a" * 64, 4: "b" * 64}
    runs = [add(f"{n}", (0.5, 0.1), (0.6, 0.2), sha256=sha256, pipeline={"stages": n}) for n, sha256 in stages.items()]
    exhibits = {one.title: one for one in ComparisonReport(compare_runs(runs)).exhibits}
    seconds, samples = exhibits["Accuracy during training"].figures
    one = "net, 1 (and 1 of equal weights)"
    assert [each.label for each in samples.series] == [one, "net, 4"] and len(seconds.series) == 3
    assert [row["series"] for row in samples.rows] == [one, one, "net, 4", "net, 4"]
    (note,) = exhibits["Accuracy during training"].findings
    assert note.endswith("is that of `net, 1` and `net, 2`, which end in the same weights.")


def test_what_must_be_said_is_said(add: Add) -> None:
    runs = [add("a", (None, 0.5), (None, 0.4)), add("b", (None, 0.5))]
    comparison = compare_runs(runs)
    assert ["seed" in note for note in comparison.notes] == [True, False]
    assert "last evaluation" in comparison.notes[1]
    assert comparison.groups[0].runs[0].score("test") == 0.4


def test_a_label_has_the_folder_where_names_are_equal(add: Add) -> None:
    runs = [add(f"{lr}", (0.5, 0.5), optimizer={"lr": lr, "kind": "adam"}) for lr in (0.1, 0.01)]
    runs.append(add("c", (0.5, 0.5), name="other"))
    comparison = compare_runs(runs)
    assert [group.label for group in comparison.groups] == ["net, 0.1", "net, 0.01", "other"]
    assert comparison.differences["optimizer.lr"] == ("0.1", "0.01", "–")
    there = runs[0].parent / "there" / "0.1"
    shutil.copytree(runs[1], there)
    labels = [group.label for group in compare_runs([runs[0], there]).groups]
    assert labels == [f"net, {runs[0]}", f"net, {there}"], "folders of one name have their whole path"


def test_engines_are_named_and_not_mixed(add: Add) -> None:
    runs = [add("a", (0.5, 0.5)), add("b", (0.5, 0.5), engine="inline"), add("c", (0.5, 0.5), seed=1)]
    comparison = compare_runs(runs)
    assert [group.label for group in comparison.groups] == ["net, a", "net, b"]
    assert [row[3] for row in score_table(comparison).rows] == ["ray", "inline"]
    assert [len(group.runs) for group in comparison.groups] == [2, 1]
    (note,) = comparison.notes
    assert "times cannot (ray: net, a; inline: net, b)" in note
    assert not compare_runs([runs[0], runs[2]]).notes


def test_weights_that_a_failed_run_could_not_save_are_not_compared(add: Add) -> None:
    folder = add("a", (0.5, 0.5), status="failed")
    report = RunReport(read_run(folder))
    assert report.values["tiles"][0] == ("Test accuracy", "–", "not evaluated")
    (shown,) = (each for each in report.exhibits if each.title == "Accuracy")
    assert not shown.figures and not shown.tables
    assert shown.findings == ("No evaluation is of weights that the run has kept.",)
    comparison = compare_runs([folder])
    assert comparison.groups[0].score("test") is None
    assert score_table(comparison).rows[0][-3:] == ("–", "–", "–")
    assert not curve_rows(comparison)
    assert not comparison.notes


def test_what_the_end_of_a_run_measures_of_the_best_weights_counts(given: ModuleType, add: Add) -> None:
    """With `run.test: end`, the evaluation at which `run.stop_at` ends a run is made again with the test set."""
    path = add("a", (0.8, None))
    writer = Writer(path / "records.jsonl")
    depths = [DepthScores(depth=2, validation=0.8, test=0.7)]
    again = {"validation": 0.8, "test": 0.7, "per_depth": depths, "duration_s": 0.1}
    writer.write(EvaluationRecord(**given.at(given.PER_EPOCH, 3.0), **again))
    writer.close()
    comparison = compare_runs([path])
    (group,) = comparison.groups
    assert group.score("test") == group.score("test", 2) == Spread(0.7, None, 1) and comparison.split == "test"


@pytest.fixture
def resumed(given: ModuleType, add: Add) -> Path:
    """A run of 20 mini-batches with evaluations of 0.1 s after 10 and 20. 70 s pass until the first mini-batch, and
    30 s from the last one before a resume to the first after it."""
    path = add("a", (0.5, 0.1), start_s=70.0)
    writer = Writer(path / "records.jsonl")
    plan = given.example_plan((1, 1))
    for record in (
        given.event("resumed", 10, 90.0),
        given.planned(plan, 10, 90.0),
        given.step(11, 102.0),
        given.staged(20, 104.0, 0),
        given.staged(20, 104.0, 1, step_times_s=[12.0, *[0.4] * 9], after_cut=[11]),
        given.evaluated(20, 104.5, 0.7, 0.7),
    ):
        writer.write(record)
    writer.close()
    return path


def test_seconds_leave_every_start_and_evaluation_out(resumed: Path) -> None:
    rows = curve_rows(compare_runs([resumed]))
    assert [row["seconds"] for row in rows] == pytest.approx([10 * 0.2, 10 * 0.2 + 10 * 0.4])


def test_an_evaluation_after_the_first_mini_batch_has_no_seconds(given: ModuleType, add: Add) -> None:
    path = add("a")
    writer = Writer(path / "records.jsonl")
    writer.write(given.evaluated(1, 5.0, 0.5, 0.5))
    writer.close()
    comparison = compare_runs([path])
    assert [row["seconds"] for row in curve_rows(comparison)] == [None]


def test_a_comparison_and_a_study_show_the_same_seconds(resumed: Path) -> None:
    summary = read_summary(resumed)
    facts = {"number": 0, "index": 0, "values": {}, "seed": 0, "overrides": [], "status": "finished"}
    trial = TrialRecord(point={"variant": "al"}, summary=summary, **facts)
    study = Study.model_validate({"study": "one", "base": "x.yaml", "axes": {"variant": {"al": {}}}})
    of_study = race(Results(study, [trial], lambda number: resumed))
    assert of_study is not None
    (by_seconds,) = (figure for figure in of_study.figures if figure.name == "accuracy_by_seconds")
    seconds = [row["seconds"] for row in curve_rows(compare_runs([resumed]))]
    assert [row["seconds"] for row in by_seconds.rows] == seconds
    target = first_reached(effective(read(resumed / "records.jsonl")), 0.6)
    assert target is not None and target.training_s == seconds[-1]


def test_a_second_evaluation_of_the_same_weights_takes_no_training_time(given: ModuleType, resumed: Path) -> None:
    """A run that stops at its target evaluates once more, with the training set."""
    writer = Writer(resumed / "records.jsonl")
    writer.write(given.evaluated(20, 104.6, 0.7, 0.7))
    writer.close()
    (run,) = compare_runs([resumed]).groups[0].runs
    *_, first, again = run.evaluations
    assert run.training_time.until(first.step) == pytest.approx(run.training_time.until(again.step))


def test_the_page_is_whole_without_a_network(add: Add) -> None:
    runs = [
        add("a", (0.5, 0.9), (0.8, 0.6), seed=0, name=HOSTILE),
        *(add(f"b{seed}", (0.9, 0.8), seed=seed, name=HOSTILE) for seed in (1, 2)),
        add("c", (0.4, 0.4), method="backpropagation", status="failed", failure=f"stage 1 {HOSTILE}"),
    ]
    report = ComparisonReport(compare_runs(runs))
    page = re.sub(r"<script>.*?</script>", "", report.page(), flags=re.DOTALL)
    assert "default-src 'none'" in page
    assert not re.findall(r"""src\s*=|href\s*=\s*.(?!#|data:)|https?://(?!vega\.github)|<i>|@import|<script>""", page)
    assert page.count("<h2 ") == 7
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for axis in ("samples", "seconds of training"):
        assert f"Accuracy against {axis}" in page
    assert "stage 1 &lt;script&gt;" in page
    bands = [row for exhibit in report.exhibits for figure in exhibit.figures for row in figure.rows if "low" in row]
    assert {row["seeds"] for row in bands} == {3} and len(bands) == 2 + 2
    assert "\\u003cscript\\u003ealert(1)" in page


def test_a_comparison_of_runs_without_any_evaluation(add: Add) -> None:
    comparison = compare_runs([add("a", status=None)])
    page = ComparisonReport(comparison).page()
    assert "No run made an evaluation." in page and "<figure" not in page and "<script" not in page
    assert ComparedRuns.as_json(comparison)["groups"][0]["test"] is None


def test_a_folder_that_is_no_run_is_refused(add: Add, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as refused:
        compare_runs([add("a", (0.5, 0.5)), tmp_path])
    assert refused.value.problems[0].hint
    with pytest.raises(CheckpointError) as refused:
        compare_runs([tmp_path / "nothing"])
    assert refused.value.problems[0].file == str(tmp_path / "nothing")


def test_spread_is_of_what_was_measured() -> None:
    assert spread([None, None]) is None
    assert spread([1.0, None, 3.0]) == Spread(2.0, None, 2, missing=1)
    assert spread([1.0, None, 2.0, 3.0]) == Spread(2.0, 1.0, 3, missing=1)


@pytest.mark.full
def test_a_page_of_runs_with_very_many_evaluations_stays_small(add: Add) -> None:
    """The curves of two runs with 1,200 evaluations each: evenly spaced, with the last one; nothing else is lost."""
    runs = [add(name, *[(0.5, 0.001 * (number % 900)) for number in range(1200)], name=name) for name in ("a", "b")]
    comparison = compare_runs(runs)
    rows = curve_rows(comparison)
    assert 1000 <= len(rows) <= 2000
    for axis, most in (("step", 12_000), ("samples", 12_000 * 64), ("seconds", 12_000 * 0.2)):
        found = [max(row[axis] for row in rows if row["series"] == name) for name in ("a", "b")]
        assert found == [pytest.approx(most)] * 2
    (run,) = comparison.groups[0].runs
    assert not run.folder.records and run.score("test", 2) == pytest.approx(0.0), "those of the best, the first one"


def test_a_comparison_has_metrics_that_are_not_finite(add: Add, tmp_path: Path) -> None:
    of = {"metric": "mean_squared_error"}
    runs = [add(f"a{seed}", (error, error), seed=seed, **of) for seed, error in enumerate((1.0, math.inf, 2.0))]
    runs.append(add("b", (math.nan, math.nan), method="backpropagation", **of))
    report = ComparisonReport(compare_runs(runs))
    assert score_table(report.comparison).rows[0][-1] == "inf ± nan" and "inf ± nan" in report.page()
    write_exhibits(report.exhibits, tmp_path)
    assert any("nan" in file.read_text() for file in tmp_path.glob("figures/*.csv"))


def test_other_machines_and_other_data_are_told(add: Add) -> None:
    runs = [add("a", (0.5, 0.9)), add("b", (0.5, 0.9), method="backpropagation"), add("c", (0.5, 0.9), seed=1)]
    of = {"device": "Xeon", "torch": "2.1", "data_sha256": "1"}

    def notes(*environments: dict[str, str]) -> list[str]:
        for run, environment in zip(runs, environments, strict=True):
            (run / "environment.json").write_text(json.dumps({**environment, "given": {}, "spec_sha256": []}))
        return [each for each in compare_runs(runs).notes if "machines" in each or "data" in each]

    assert notes(of, of, {**of, "data_sha256": "2"}) == []  # a seed may choose the validation set
    assert notes(of, {**of, "device": "EPYC", "torch": "2.15"}, of) == [
        "different machines or versions, so times cannot be compared (device: Xeon or EPYC; torch: 2.1 or 2.15)"
    ]
    assert notes(of, {**of, "data_sha256": "2"}, of) == ["runs that name the same data had other data"]
    runs.append(add("d", (0.5, 0.9), task={"kind": "multi_label"}))  # which has other labels
    assert notes(of, of, of, {**of, "data_sha256": "2"}) == []
