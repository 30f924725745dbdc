"""The scripts and the notebook in `examples/` run, each in an empty folder beside the specs."""

from __future__ import annotations

import ast
import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from alray import Run

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SAYS = {
    "first_run.py": ("test accuracy 0.", "a mini-batch took", "the page is"),
    "learning_rates.py": ("mlp, lr 0.001", "the best learning rate of the three is"),
    "where_it_would_run.py": ("stages: 1, cut [4]", "stages: 4, cut [1, 1, 1, 1]"),
    "after_training.py": ("depth 2: test accuracy", "route-2.safetensors", "105 mini-batches"),
    "one_file.py": ("depth 4: test accuracy", "weights_sha256"),  # tests/test_one_file.py compares them with alray's
}
ARGUMENTS = {"one_file.py": ("--steps", "3")}


@pytest.fixture
def beside_the_specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None, nothing_measured: None) -> Path:
    (tmp_path / "specs").symlink_to(ROOT / "specs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_script_is_tried() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.few
@pytest.mark.parametrize("name", SAYS)
def test_a_script(
    name: str, beside_the_specs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS.get(name, ())])
    scope = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    assert [text for text in SAYS[name] if text not in printed] == []
    learned([*scope.values(), *scope.get("runs", ())])


@pytest.mark.full
def test_the_notebook(beside_the_specs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cell by cell in one namespace, as a kernel does; the last expression of a cell is shown as HTML or as text."""
    notebook = json.loads((EXAMPLES / "first_steps.ipynb").read_text(encoding="utf-8"))
    scope: dict[str, Any] = {}
    shown = [show("".join(cell["source"]), scope) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    learned(list(scope.values()))
    assert sum("<iframe srcdoc" in text for text in shown) == 2
    assert "optimizer.learning_rate: unknown key" in capsys.readouterr().out


def test_the_notebook_has_its_outputs() -> None:
    """`python -m benchmarks.notebook` makes them."""
    text = (EXAMPLES / "first_steps.ipynb").read_text(encoding="utf-8")
    assert len(text) < 100_000 and not re.search(r"/(tmp|home|root)/|Warning", text)
    first, *cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    assert first["outputs"] == [] and all(cell["outputs"] for cell in cells)
    assert [cell["execution_count"] for cell in (first, *cells)] == list(range(1, len(cells) + 2))


def learned(values: list[Any]) -> None:
    """Every run of ten classes is far above chance."""
    runs = [value for value in values if isinstance(value, Run)]
    assert [run for run in runs if run.summary.accuracy.test < 0.5] == []


def show(source: str, scope: dict[str, Any]) -> str:
    """Run a cell, and return what it shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), scope)
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if last is not None else None
    return str(value._repr_html_() if hasattr(value, "_repr_html_") else value)
