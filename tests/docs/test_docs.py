"""What the pages say is so: their examples run, and what they name is there."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.config.study.load import is_study, load_study
from alray.runtime.planner.costs_file import PUBLISHED
from benchmarks import crossover, findings_page, keys_page, predictions_page, publish, published, runs

from .pages import PAGES, write_files

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_the_example_of_a_spec_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    assert {"stripes.py", "stripes.yaml"} <= {*write_files("docs/extending.md", tmp_path)}
    monkeypatch.chdir(tmp_path)
    assert execute(["run", "stripes.yaml", "--inline", "--json", "--output", "out"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["status"], summary["stages"]) == ("finished", 2)
    assert summary["accuracy"]["test"] > 0.9


OPTIMIZERS = re.findall(r"^    optimizer: (\{kind: [^}]*\}?\})", page("spec.md"), re.MULTILINE)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_examples_of_optimizers_train(
    optimizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    spec = str(DOCS.parent / "specs" / "laptop" / "mlp_digits.yaml")
    run = ["run", spec, "--inline", "--json", "--output", str(tmp_path / "out"), "run={epochs: 4, test: end}"]
    assert execute([*run, f"optimizer={optimizer}"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"]["test"] > 0.8


def test_the_tracker_of_ones_own_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    ((code, run),) = re.findall(r"```python\n([^`]*Tracker.*?)```.*?```yaml\n(.*?)```", page("runs.md"), re.DOTALL)
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
    """`make keys`."""
    assert page("keys.md") == keys_page.page()


def test_the_pages_of_studies_are_current() -> None:
    """`make findings`."""
    found = findings_page.findings(findings_page.SPECS, findings_page.REPORTS)
    assert findings_page.PAGE.read_text(encoding="utf-8") == findings_page.page(found)
    found, elsewhere = predictions_page.settings(findings_page.SPECS, findings_page.REPORTS), published.section()
    assert predictions_page.PAGE.read_text(encoding="utf-8") == predictions_page.page(found, elsewhere)
    (counted,) = (line.split(" | ") for line in elsewhere.splitlines() if "that set no number**" in line)
    assert f"{PUBLISHED:.1%}" == counted[4]


def test_the_words_and_factors_of_the_crossover_are_those_of_today() -> None:
    """`python -m benchmarks.crossover --factors`."""
    assert crossover.with_words(page("crossover.md")) == page("crossover.md")


@pytest.mark.parametrize("name", publish.pages(runs.RESULTS))
def test_a_page_of_benchmarks_is_what_their_results_give(name: str) -> None:
    """Nobody edits a figure by hand: `make publish`."""
    assert page(name) == publish.pages(runs.RESULTS)[name]


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


def test_the_example_of_a_spec_on_top_of_another_is_one(tmp_path: Path) -> None:
    blocks = re.findall(r"^((?:    .+\n)+)", page("spec.md"), re.MULTILINE)
    (example,) = (block for block in blocks if block.startswith("    base:"))
    (tmp_path / "al").symlink_to(DOCS.parent / "specs" / "al")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x.yaml").write_text(textwrap.dedent(example), encoding="utf-8")
    spec = load_spec(tmp_path / "mine" / "x.yaml").spec
    assert (spec.name, spec.model.num_components, spec.pipeline.stages) == ("vgg_cifar10_small", 2, 2)


def test_the_way_to_the_hash_is_the_one_that_is_taken(tmp_path: Path) -> None:
    """The program on the page gives what the run gave."""
    (program,) = re.findall(r"```python\n(import hashlib.*?)```", page("runs.md"), re.DOTALL)
    cost = "{forward_s: 0.001, backward_s: 0.001, update_s: 0.001}"
    short = ["run.epochs=1", f"pipeline.costs=[{cost}, {cost}, {cost}, {cost}]"]
    spec = str(DOCS.parent / "specs/quickstart.yaml")
    assert execute(["run", spec, *short, "--inline", "--output", str(tmp_path / "run")]) == 0
    scope: dict[str, str] = {"run": str(tmp_path / "run")}
    exec(program, scope)
    assert scope["sha256"] == json.loads((tmp_path / "run/summary.json").read_text())["weights_sha256"]


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


def test_a_module_of_ones_own_goes_in_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None, nothing_measured: None
) -> None:
    """By BP, DGL and AL on two stages; the state dict loads into the class, and predicts what was evaluated."""
    write_files("docs/from_pytorch.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    scope: dict[str, Any] = {}
    for block in re.findall(r"(?<!`:\n\n)```python\n(.*?)```", page("from_pytorch.md"), re.DOTALL):
        exec(block, scope)
    samples, labels = scope["test"]
    assert torch.allclose(scope["scores"], scope["dgl"].network(1)(samples), atol=1e-5)
    for read, run in (("again", "bp"), ("network", "al")):
        predicted = scope[read](samples).argmax(1)
        assert float((predicted == labels).float().mean()) == pytest.approx(scope[run].summary.accuracy.test)
    runs = (scope["bp"], scope["dgl"], scope["al"])
    assert all(run.plan.stages == 2 and run.summary.accuracy.test > 0.5 for run in runs)


@pytest.mark.timeout(600)
def test_one_script_runs_in_one_process_and_on_two_stages(tmp_path: Path) -> None:
    write_files("docs/from_pytorch.md", tmp_path)
    said = []
    for stages in ([], ["2"]):
        done = subprocess.run(
            [sys.executable, "job.py", *stages], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines()[-1])
    assert said[0] == said[1] and float(said[0].split()[0]) > 0.5


def test_the_studies_of_a_fair_comparison_are_studies(tmp_path: Path) -> None:
    write_files("docs/comparing.md", tmp_path)
    found = {name: load_study(tmp_path / f"fair/{name}.yaml") for name in ("rates", "fair")}
    assert {name: len(study.trials) for name, study in found.items()} == {"rates": 72, "fair": 15}


def test_alray_says_the_messages_of_the_page_on_trouble() -> None:
    messages = re.findall(r"^\| `([^`]+)` \|", page("errors.md"), re.M)
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


def test_every_spec_begins_with_its_command_and_its_schema() -> None:
    root = DOCS.parent
    files = [file for folder in ("specs", "benchmarks", "examples") for file in (root / folder).rglob("*.yaml")]
    specs = [file for file in files if file.parent != published.RUNS]
    assert specs
    for file in specs:
        first, second, *_ = file.read_text(encoding="utf-8").split("\n")
        commands = "study" if is_study(file) else "run|plan"
        name = re.escape(file.relative_to(root).as_posix())
        assert re.fullmatch(rf"# [A-Z].+[.?] +alray ({commands}) {name}( \S+)*", first), first
        modeline = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", second)
        assert modeline is not None, second
        assert (file.parent / modeline[1]).resolve() == root / "specs" / "alray.schema.json"
