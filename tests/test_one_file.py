"""`examples/one_file.py`, which uses none of alray's stages and methods, ends in the same weights as alray."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from alray.cli.main import execute

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CASES = {
    "al": ("associated_learning", 3, (1, 2)),
    "scpl": ("supervised_contrastive", 3, (1,)),
    "dgl": ("decoupled_greedy", 21, (1,)),  # into the second epoch, for which samples are shuffled anew
    "bp": ("backpropagation", 3, (1,)),
}
"""By `--method`: alray's name of it, the number of mini-batches, and the numbers of processes to try."""
COSTS = "pipeline.costs=[" + ", ".join(["{forward_s: 0.001, backward_s: 0.001, update_s: 0.001}"] * 4) + "]"
"""Given: to measure components takes longer than to train them."""
ALLOWED = {"alray.data", "alray.core", "alray.parts"}


@pytest.mark.few
@pytest.mark.parametrize(
    ("method", "stages"), [(method, count) for method, (_, _, counts) in CASES.items() for count in counts]
)
def test_the_weights_are_those_of_alray(
    method: str,
    stages: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    one_thread: None,
    counted_once: None,
) -> None:
    name, steps, _ = CASES[method]
    expected = told_by_alray(name, steps, tmp_path / "run")
    capsys.readouterr()
    run_one_file(monkeypatch, "--method", method, "--steps", str(steps), "--stages", str(stages))
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", CASES)
def test_the_whole_quickstart(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    expected = told_by_alray(CASES[method][0], 400, tmp_path / "run")
    capsys.readouterr()
    run_one_file(monkeypatch, "--method", method)
    assert capsys.readouterr().out.splitlines() == expected


def test_backpropagation_takes_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_thread: None
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_one_file(monkeypatch, "--method", "bp", "--stages", "2")
    assert ended.value.code == 2
    assert "--stages 2 is for local losses" in capsys.readouterr().err


def test_it_takes_only_data_and_seeds_from_alray() -> None:
    modules = []
    for node in ast.walk(ast.parse((EXAMPLES / "one_file.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
    of_alray = [module for module in modules if module.split(".")[0] == "alray"]
    assert of_alray and {".".join(module.split(".")[:2]) for module in of_alray} <= ALLOWED


def told_by_alray(method: str, steps: int, folder: Path) -> list[str]:
    """What the file is to print, from the summary of a run."""
    command = ["run", str(ROOT / "specs" / "quickstart.yaml"), f"method={method}", f"run.steps={steps}", COSTS]
    assert execute([*command, "--inline", "--output", str(folder)]) == 0
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    depths = [f"depth {route['depth']}: test accuracy {route['test']:.4f}" for route in summary["accuracy_per_depth"]]
    return [*depths, f"weights_sha256 {summary['weights_sha256']}"]


def run_one_file(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)  # its two processes import it, too
    monkeypatch.setattr(sys, "argv", ["one_file.py", *arguments])
    import one_file

    one_file.main()
