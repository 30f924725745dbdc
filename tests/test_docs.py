"""What the pages say is so: their examples run, and what they name is there."""

from __future__ import annotations

import ast
import csv
import json
import os
import re
import shutil
import textwrap
from pathlib import Path

import pytest
from pydantic import BaseModel

import alray
from alray.api.trained import Trained
from alray.cli.main import execute
from alray.config.schema import json_schema
from alray.config.study.load import load_study
from alray.core.run_folder.records import (
    CheckpointRecord,
    EvaluationRecord,
    EventRecord,
    PlanRecord,
    StageRecord,
    StepsRecord,
    Summary,
)
from alray.report.definitions import definition
from benchmarks import keys_page

from .pages import PAGES, write_files
from .pairwise import first_alone

DOCS = Path(__file__).parents[1] / "docs"
RECORDS = (StepsRecord, StageRecord, EvaluationRecord, CheckpointRecord, EventRecord, PlanRecord)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def named(text: str) -> set[str]:
    """Every word that a page shows as code."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return set(re.findall(r"[A-Za-z_0-9]+", " ".join(re.findall(r"`([^`]+)`", prose))))


def test_the_example_of_a_spec_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    assert write_files("docs/writing_a_spec.md", tmp_path) == [
        "one_hot.py",
        "quantile.py",
        "stripes.py",
        "stripes.yaml",
    ]
    monkeypatch.chdir(tmp_path)
    assert execute(["run", "stripes.yaml", "--inline", "--json", "--output", "out"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["status"], summary["stages"]) == ("finished", 2)
    assert summary["accuracy"]["test"] > 0.9


OPTIMIZERS = re.findall(r"^    optimizer: (\{kind: [^}]*\}?\})", page("writing_a_spec.md"), re.MULTILINE)


@pytest.mark.parametrize("optimizer", first_alone(OPTIMIZERS))
def test_the_examples_of_optimizers_train(
    optimizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    spec = str(DOCS.parent / "specs" / "laptop" / "mlp_digits.yaml")
    run = ["run", spec, "--inline", "--json", "--output", str(tmp_path / "out"), "run={epochs: 4, test: end}"]
    assert execute([*run, f"optimizer={optimizer}"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"]["test"] > 0.8


def test_there_are_examples_of_optimizers() -> None:
    assert len(OPTIMIZERS) == 3


def test_the_tracker_of_ones_own_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    ((code, run),) = re.findall(r"```python\n(.*?)```.*?```yaml\n(.*?)```", page("watching.md"), re.DOTALL)
    (tmp_path / "my_tracker.py").write_text(code, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\n"
        "data: {source: synthetic, shape: [4], classes: 2, samples: 40, batch_size: 8}\n"
        "model: {components: [{block: linear, width: 3}]}\n"
        "optimizer: {kind: adam, lr: 0.01}\n" + run,
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    assert execute(["run", "mine.yaml", "--inline", "--output", "out"]) == 0
    first, *rows, last = (tmp_path / "validation.csv").read_text(encoding="utf-8").splitlines()
    assert (first, last) == ("# out, lr 0.01", "# finished")
    assert [row.partition(",")[0] for row in rows] == [str(4 * epoch) for epoch in range(1, 21)]


def test_the_page_of_keys_is_current() -> None:
    """It has every key of the grammar, because it is made of it: `make keys`."""
    assert page("keys.md") == keys_page.page()
    keys = {key for section in json_schema()["$defs"].values() for key in section.get("properties", ())}
    assert keys - {"kind", "source", "block"} <= set(re.findall(r"^\| `(\w+)` \|", page("keys.md"), re.M))


def test_the_example_of_a_study_is_one(tmp_path: Path) -> None:
    blocks = re.findall(r"^((?:    .+\n)+)", page("studies.md"), re.MULTILINE)
    study, search, *_ = (block for block in blocks if block.startswith(("    study:", "    search:")))
    folder = tmp_path / "studies"
    folder.mkdir()
    shutil.copy(DOCS.parent / "specs/quickstart.yaml", tmp_path)
    (folder / "x.yaml").write_text(textwrap.dedent(study), encoding="utf-8")
    assert len(load_study(folder / "x.yaml").trials) == 12
    sgd = "set: {optimizer: {kind: sgd, lr: 0.1}}"
    text = re.sub(r"set:.*", sgd, textwrap.dedent(study)) + textwrap.dedent(search)
    (folder / "x.yaml").write_text(text, encoding="utf-8")
    assert len(load_study(folder / "x.yaml").trials) == 12 * 20


def _key(field: str) -> str:
    """The key of a field in a file. Those with the metric's name are shown as in classification."""
    return field.replace("scores", "accuracy")


@pytest.mark.parametrize("kind", [Summary, *RECORDS])
def test_every_key_of_a_run_folder_is_explained(kind: type[BaseModel]) -> None:
    assert {_key(field) for field in kind.model_fields} - named(page("run_folder.md")) == set()


@pytest.mark.full
def test_the_way_to_the_hash_is_the_one_that_is_taken(tmp_path: Path) -> None:
    """The program on the page gives what the run gave."""
    (program,) = re.findall(r"```python\n(.*?)```", page("run_folder.md"), re.DOTALL)
    cost = "{forward_s: 0.001, backward_s: 0.001, update_s: 0.001}"
    short = ["run.epochs=1", f"pipeline.costs=[{cost}, {cost}, {cost}, {cost}]"]
    spec = str(DOCS.parent / "specs/quickstart.yaml")
    assert execute(["run", spec, *short, "--inline", "--output", str(tmp_path / "run")]) == 0
    scope: dict[str, str] = {"run": str(tmp_path / "run")}
    exec(program, scope)
    assert scope["sha256"] == json.loads((tmp_path / "run/summary.json").read_text())["weights_sha256"]


@pytest.mark.full
def test_the_python_of_the_page_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_thread: None,
    nothing_measured: None,
) -> None:
    (tmp_path / "specs").symlink_to(DOCS.parent / "specs")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page("python.md"), re.DOTALL):
        exec(block, scope)
    assert "overrides: optimizer.learning_rate: unknown key" in capsys.readouterr().out


def test_every_name_of_the_interface_is_on_its_page() -> None:
    functions = {name for name in alray.__all__ if name.islower() and not name.startswith("_")}
    methods = {name for kind in (alray.Run, Trained) for name in vars(kind) if not name.startswith("_")}
    assert (functions | methods) - named(page("python.md")) == set()


def test_every_test_that_a_page_names_is_there() -> None:
    tests = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page("writing_a_spec.md"))
    assert len(tests) > 10
    for file, name in tests:
        assert f"def {name}(" in (DOCS.parent / "tests" / "engine" / file).read_text(encoding="utf-8"), name


@pytest.mark.parametrize(("kind", "heading"), [(Summary, "key"), (StageRecord, "key of `stage`")])
def test_a_figure_has_one_definition(kind: type[BaseModel], heading: str) -> None:
    """The page has the docstrings of the fields, which the report and the terminal show too."""
    own = list(kind.model_fields)
    if kind is StageRecord:
        own = own[own.index("stage") :]  # the keys before it are those of every record
    table = re.compile(rf"(?<=\| {heading} \| meaning \|\n\|---\|---\|\n)(\|.*\n)+")
    rows = "".join(f"| `{_key(field)}` | {definition(kind, field)} |\n" for field in own)
    if os.environ.get("UPDATE_GOLDEN"):
        (DOCS / "run_folder.md").write_text(table.sub(lambda _: rows, page("run_folder.md")), encoding="utf-8")
    found = table.search(page("run_folder.md"))
    assert found is not None and found[0] == rows, "UPDATE_GOLDEN=1 pytest tests/test_docs.py writes the tables"


@pytest.mark.full
def test_alray_says_the_messages_of_the_page_on_trouble() -> None:
    messages = re.findall(r"^\| `([^`]+)` \|", page("troubleshooting.md"), re.M)
    assert len(messages) > 20
    texts = [
        node.value
        for file in (DOCS.parent / "alray").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [said for said in messages if not any(said in text for text in texts)] == []


PLACES = ("alray", "benchmarks", "cluster", "docs", "examples", "specs", "tests")


@pytest.mark.parametrize("name", PAGES)
def test_every_file_that_a_page_names_is_there(name: str) -> None:
    text = (DOCS.parent / name).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    named = re.findall(rf"(?<![\w/.-])(?:{'|'.join(PLACES)})/[\w/.*-]*[\w*]", prose)
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", prose)
    assert [each for each in named if not list(DOCS.parent.glob(each.replace("NAME", "*")))] == []
    assert [each for each in linked if not ((DOCS.parent / name).parent / each).exists()] == []


def test_the_figures_of_local_learning_are_measured_ones() -> None:
    text = page("local_learning.md")
    points = (DOCS / "studies/strong_scaling/tables/points.csv").read_text(encoding="utf-8")
    rows = {(row["pipeline.stages"], row["variant"]): row for row in csv.DictReader(points.splitlines())}
    shown = set(re.findall(r"\d+\.\d+", text))
    for variant in ("al_streamed", "bp_naive"):
        assert "{:.1f}".format(1e3 * float(rows["1", variant]["step_time_s"])) in shown
        assert "{:.2f}".format(float(rows["2", variant]["speed_up"])) in shown
    on_two = (row for (stages, _), row in rows.items() if stages == "2")
    assert min(on_two, key=lambda row: float(row["step_time_s"]))["variant"] == "bp_gpipe" and "GPipe" in text
    ahead = [float(each) for each in re.findall(r"\| ([+-][\d.]+) ± [\d.]+ \| \w+ \|$", page("accuracy.md"), re.M)]
    assert {f"{-min(ahead):.1f}", f"{max(ahead):.1f}"} <= shown


def test_every_full_size_spec_has_its_published_figures() -> None:
    """One row each, in which nothing is empty but the AL of a baseline."""
    rows = [line.strip("|").split("|") for line in page("published.md").splitlines() if line.startswith("| `specs/")]
    found = {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in rows}
    specs = DOCS.parent / "specs"
    committed = [file for folder in ("al", "baselines") for file in (specs / folder).glob("*.yaml")]
    assert len(rows) == len(found)
    assert set(found) == {file.relative_to(DOCS.parent).as_posix() for file in committed}
    for name, (local, *others) in found.items():
        assert bool(local) == name.startswith("specs/al/"), name
        assert all(others), name
