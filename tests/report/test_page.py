"""The report page: it is valid HTML, needs no other file, and shows the figures of the records."""

import csv
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from alray.core.errors import CheckpointError
from alray.core.run_folder.records import CheckpointRecord, Record, Summary
from alray.planning.prediction.plan import Plan
from alray.report.definitions import definition
from alray.report.make import make_report
from alray.report.summary import summarise

VOID = {"meta", "link", "br", "img", "input", "hr"}
IN_PAGE = ("#", "data:")
"""How links begin that lead to no file."""


class Page(HTMLParser):
    """Text, tags, figures and links of a page; fails on tags that do not match and on anything from another host."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.links: set[str] = set()
        self.figures: dict[str, list[dict[str, Any]]] = {}  # name: rows
        self._figure = ""
        self.feed(text)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attributes)
        assert tag not in {"link", "img", "iframe", "object"}
        assert not {"src", "xlink:href", "srcset", "data", "action"} & set(given)
        if (link := given.get("href") or "") and not link.startswith(IN_PAGE):
            self.links.add(link)
        self._figure = given.get("data-name") or self._figure
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            assert "url(" not in data and "@import" not in data
        elif self.open and self.open[-1] == "script":
            if data.startswith("{") and self._figure:
                drawing = json.loads(data, parse_constant=_refused)  # NaN: a browser refuses it
                if "datasets" in drawing:
                    self.figures[self._figure] = drawing["datasets"]["rows"]
        else:
            self.words.append(data)


def _refused(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def report(given: ModuleType, folder: Path, plan: Plan, records: list[Record], **facts: object) -> Page:
    """The page of a run with a summary (`facts` change it), parsed."""
    summary = summary_of(plan, records, **facts)
    path = make_report(given.write_run(folder, plan, records, summary=summary))
    assert path == folder / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def summary_of(plan: Plan, records: list[Record], **facts: object) -> Summary:
    known = {
        "version": "0.1.0",
        "name": "example",
        "status": "finished",
        "run_dir": "runs/example",
        "seed": 0,
        "threads": 1,
        "engine": "inline",
        "duration_s": 75.5,
        "weights_sha256": "ab" * 32,
        "parameters": 2000,
    }
    return summarise(records, plan, **{**known, **facts})


def test_a_whole_run(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    records = given.example_records(plan)
    saved = CheckpointRecord(**given.at(40, 2.0), path="checkpoints/step-00000040", bytes=1_500_000, duration_s=0.02)
    page = report(given, tmp_path / "run", plan, [*records, saved, given.event("finished", 40, 2.0)])
    for said in (
        "Test accuracy 0.9000 of the final weights; validation 0.9100",
        "Samples per second 12,800",
        "Step time 5.00 ms predicted 4.00 ms",
        "Bubble 20.0 % predicted 0.0 %",
        "Duration 75.5 s 0 failures",
        "Peak memory 1.00 MB",
        "associated loss",
        "autoencoder loss",
        "0->1 20.0 kB 800 kB",
        "From 1.154 s to 1.17",
        "s after the start of the run, after warm-up: stage 0 did mini-batches 11 to 14.",
        "1 checkpoint written, the last after 40 mini-batches (1.50 MB in 20.0 ms).",
        "machine.cores 2",
        "name: example # <b> & so on",
        "in one process (inline)",
        "ab" * 32,
    ):
        assert said in page.text
    for key, name in (("step_time_s", "Step time"), ("samples_per_s", "Samples per second"), ("bubble", "Bubble")):
        assert f"{name} : {definition(Summary, key).replace('`', '')}" in page.text
    # Of stage 1: predicted memory of its tensors, measured memory of its process.
    assert "stage 1 1 vgg [32] 178 kB 1.00 MB" in page.text
    assert "b" not in page.tags[page.tags.index("pre") :]  # the spec's text is escaped
    assert page.links == {
        "records.jsonl",
        "summary.json",
        "plan.json",
        "spec.yaml",
        "environment.json",
    }


def test_figures_have_the_values_of_the_records(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    shown = report(given, tmp_path / "run", plan, given.example_records(plan)).figures
    assert [(row["lane"], row["label"]) for row in shown["network"]] == [
        ("stage 0|a processor", "0 vgg [32]"),
        ("stage 1|a processor", "1 vgg [32]"),
    ]
    losses = {(row["series"], row["step"]): row["loss"] for row in shown["loss_autoencoder"]}
    assert len(losses) == 80 and losses["component 1", 3] == pytest.approx(4.0 / 4)
    accuracies = {(row["series"], row["step"]): row["accuracy"] for row in shown["accuracy"]}
    assert accuracies["validation", 40] == 0.91 and accuracies["test", 10] == 0.79
    assert [row["accuracy"] for row in shown["accuracy_per_depth"] if row["series"] == "depth 1"] == [0.4] * 4
    assert {round(row["utilisation"], 9) for row in shown["utilisation"]} == {0.8}
    slots = {(row["kind"], row.get("action")) for row in shown["schedule"]}
    assert {("predicted", "0F11"), ("measured", "1B12")} <= slots


def test_what_the_user_wrote_of_the_spec_is_open_and_the_rest_is_folded(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    folder = given.write_run(tmp_path / "run", plan, given.example_records(plan))
    command = ["/opt/bin/alray", "run", "my spec.yaml", "seed=0"]
    git = {"commit": "c0ffee", "dirty": True}
    facts = {
        "python": "3.11.7",
        "alray": "0.9",
        "command": command,
        "git": git,
        "given": {"name": "mine"},
        "spec_sha256": [],
    }
    (folder / "environment.json").write_text(json.dumps(facts))
    page = make_report(folder).read_text(encoding="utf-8")
    said = Page(page).text
    assert "name: mine With every default name: example # <b>" in said
    for told in (
        f"do it again alray reproduce {folder}",
        "begun by alray run 'my spec.yaml' seed=0",
        "c0ffee, with changes that are not committed",
        "alray 0.9, python 3.11.7",
    ):
        assert told in said
    opened, _, folded = page.partition("<summary>With every default</summary>")
    assert "name: mine" in opened and "seed: 0" not in opened and "seed: 0" in folded


def test_a_run_of_a_python_program_is_done_again_with_its_objects(given: ModuleType, tmp_path: Path) -> None:
    """The words of the program are no command of alray."""
    plan = given.example_plan()
    folder = given.write_run(tmp_path / "run", plan, given.example_records(plan))
    facts = {"command": ["train.py", "--epochs", "3"], "objects": ["model", "data"], "given": {}, "spec_sha256": []}
    (folder / "environment.json").write_text(json.dumps(facts), encoding="utf-8")
    said = Page(make_report(folder).read_text(encoding="utf-8")).text
    assert f"do it again alray.reproduce('{folder}', model=..., data=...)" in said
    assert "begun by a Python program: train.py --epochs 3" in said and "alray --epochs" not in said


@pytest.mark.full
def test_the_files_of_a_report_are_those_that_the_page_has(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    folder = given.write_run(tmp_path / "run", plan, given.example_records(plan))
    make_report(folder)
    assert not (folder / "figures").exists(), "they take a second, at the end of every run"
    shown = Page(make_report(folder, files=True).read_text(encoding="utf-8"))
    assert {path.stem for path in (folder / "figures").glob("*.svg")} == set(shown.figures)
    for name, rows in shown.figures.items():
        assert len((folder / "figures" / f"{name}.csv").read_text().splitlines()) == len(rows) + 1
    assert {path.name for path in (folder / "tables").glob("plan.*")} == {"plan.csv", "plan.md", "plan.tex"}


def test_a_loss_of_any_name_has_a_file_in_its_folder(given: ModuleType, tmp_path: Path) -> None:
    """An own method names its losses; two names may differ in signs alone that no file name has."""
    plan = given.example_plan()
    own = {"mse/x": 1.0, "mse x": 2.0, "a/../../../out": 3.0, "a b/2": 4.0, "a b": 5.0, "a/b": 6.0}
    records = [given.step(number, float(number), {0: own}) for number in (1, 2)]
    folder = given.write_run(tmp_path / "run", plan, records)
    before = {path.name for path in tmp_path.iterdir()}
    make_report(folder, files=True)
    values = {
        path.stem: [float(row["loss"]) for row in csv.DictReader(path.open(encoding="utf-8"))]
        for path in (folder / "figures").glob("loss_*.csv")
    }
    assert values == {
        "loss_a-b": [5.0, 5.0],
        "loss_a-b-2": [4.0, 4.0],
        "loss_a-b-3": [6.0, 6.0],
        "loss_a-..-..-..-out": [3.0, 3.0],
        "loss_mse-x": [2.0, 2.0],
        "loss_mse-x-2": [1.0, 1.0],
    }
    assert {path.name for path in tmp_path.iterdir()} == before


def test_the_other_files_are_written_too(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    report(given, tmp_path / "run", plan, given.example_records(plan))
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1
    assert not list((tmp_path / "run").glob("*.partial"))


def test_a_plan_that_was_not_measured_stands_beside_no_times_of_another(given: ModuleType, tmp_path: Path) -> None:
    """Continued for five mini-batches on two stages: the table of attempts has the times of the one stage before."""
    alone, plan = given.example_plan((2,)), given.example_plan((1, 1))
    few = [given.staged(45, 9.5, stage, steps=5, warm_up=True) for stage in (0, 1)]
    more = [given.event("resumed", 40, 9.0), given.planned(plan, 40, 9.0), *few]
    page = report(given, tmp_path / "run", plan, [*given.example_records(alone), *more])
    assert "Step time – predicted 4.00 ms" in page.text
    assert "predicted step 4.00 ms, measured –." in page.text
    assert "No mini-batch after warm-up was measured" in page.text
    assert "0 to 40" in page.text and "5.00 ms 8.00 ms" in page.text


def test_backpropagation_on_one_stage(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan((4,), schedule="single", method="backpropagation")
    page = report(given, tmp_path / "run", plan, given.example_records(plan))
    assert "cross entropy loss" in page.text
    assert "component 3" in page.text and "component 0" not in page.text
    assert "One stage: nothing was sent." in page.text


def test_an_interrupted_run_without_evaluations(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    records = given.example_records(plan, epochs=1, evaluate=False)
    records.append(given.event("interrupted", 10, 1.2, "Ctrl-C"))
    page = report(given, tmp_path / "run", plan, records, status="interrupted", weights_sha256=None)
    assert "Test accuracy – not evaluated" in page.text
    assert "The run made no evaluation." in page.text
    assert "No mini-batch after warm-up was measured." in page.text
    assert "Step time – predicted 4.00 ms" in page.text
    assert "SHA-256" not in page.text


def test_an_accuracy_before_the_end_says_so(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    records = [*given.example_records(plan, epochs=1), given.step(13, 1.2, {0: {"associated": 0.5}})]
    page = report(given, tmp_path / "run", plan, records, status="interrupted")
    assert "Test accuracy 0.7900 after 10 mini-batches" in page.text


def test_a_run_killed_at_once(given: ModuleType, tmp_path: Path) -> None:
    folder = given.write_run(tmp_path / "run", given.example_plan(), [], environment=False)
    page = Page(make_report(folder).read_text(encoding="utf-8"))
    assert "no summary was written" in page.text
    assert "No mini-batch was recorded." in page.text
    assert set(page.figures) == {"network", "schedule"}
    assert "The run folder has no environment.json." in page.text


def test_a_loss_that_is_not_finite(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    records = [
        given.step(1, 0.1, {0: {"associated": 0.5}, 1: {"associated": math.inf}}),
        given.step(2, 0.2, {0: {"associated": 0.4}, 1: {"associated": math.nan}}),
        given.event("failed", 2, 0.3, "component 1, step 2: associated is <nan>", stage=1),
    ]
    page = report(given, tmp_path / "run", plan, records, status="failed")
    assert "2 values that are not finite left out" in page.text
    assert "failed 300 ms 2 stage 1 component 1, step 2: associated is <nan>" in page.text
    assert "1 failure" in page.text


def test_a_metric_that_is_not_finite(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    records = [*given.example_records(plan, evaluate=False), given.evaluated(40, 2.0, math.nan, math.inf)]
    page = report(given, tmp_path / "run", plan, records)
    assert "Test accuracy inf of the final weights; validation nan" in page.text


@pytest.mark.full
def test_the_page_stays_small(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan((2, 2))
    report(given, tmp_path / "run", plan, given.example_records(plan, epochs=400))
    text = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert len(text) < 1_600_000, "0.9 MB are the library that draws the figures"
    assert "each point is the mean of 8 neighbours" in text


def test_a_report_can_be_made_again(given: ModuleType, tmp_path: Path) -> None:
    plan = given.example_plan()
    folder = given.write_run(tmp_path / "run", plan, given.example_records(plan))
    first = make_report(folder).read_bytes()
    assert make_report(folder).read_bytes() == first


@pytest.mark.parametrize("name", ["records.jsonl", "plan.json", "spec.yaml"])
def test_a_missing_file_is_named(given: ModuleType, tmp_path: Path, name: str) -> None:
    folder = given.write_run(tmp_path / "run", given.example_plan(), [])
    (folder / name).unlink()
    with pytest.raises(CheckpointError) as caught:
        make_report(folder)
    (problem,) = caught.value.problems
    assert problem.file == str(folder / name) and problem.hint


def test_a_damaged_plan_is_told_with_its_line(given: ModuleType, tmp_path: Path) -> None:
    folder = given.write_run(tmp_path / "run", given.example_plan(), [])
    (folder / "plan.json").write_text('{"method":\n}')
    with pytest.raises(CheckpointError) as caught:
        make_report(folder)
    assert (caught.value.problems[0].file, caught.value.problems[0].line) == (str(folder / "plan.json"), 2)
    (folder / "plan.json").write_text("{}")
    with pytest.raises(CheckpointError, match="Field required"):
        make_report(folder)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        make_report(tmp_path / "nowhere")
    assert caught.value.problems[0].file == str(tmp_path / "nowhere")


def test_what_a_user_wrote_is_shown_and_not_run(given: ModuleType, tmp_path: Path) -> None:
    hostile = "</pre><script>alert('x')</script>"
    plan = given.example_plan()
    component = replace(plan.costs.components[0], name=hostile)
    plan = replace(plan, costs=replace(plan.costs, components=(component, component)))
    records = [*given.example_records(plan), given.event("warning", 40, 2.0, hostile)]
    folder = given.write_run(tmp_path / "run", plan, records, summary=summary_of(plan, records, name=hostile))
    (folder / "spec.yaml").write_text(f"name: {hostile}\ntask: {{kind: classification}}")
    (folder / "environment.json").write_text(json.dumps({hostile: hostile, "given": {}, "spec_sha256": []}))
    html = make_report(folder).read_text(encoding="utf-8")
    # Title, heading, spec, event, the components of both stages, key and value of the environment.
    assert Page(html).text.count(hostile) == 8
    assert "<script>alert" not in html
    assert html.count("<script") == html.count("</script") == len(Page(html).figures) + 3
    assert re.search(r"script-src( 'sha256-[^']+'){2} 'unsafe-eval';", html), "the browser runs no other script"


@pytest.mark.parametrize("schedule", ["streamed", "overlapped", "parallel_backward", "sequential"])
def test_every_schedule_is_drawn(given: ModuleType, tmp_path: Path, schedule: str) -> None:
    plan = given.example_plan((1, 2, 1), schedule=schedule)
    actions = {row.get("action") for row in report(given, tmp_path / "run", plan, []).figures["schedule"]}
    assert {f"{stage}{kind}{batch}" for stage in range(3) for kind in "FBU" for batch in (0, 5)} <= actions
