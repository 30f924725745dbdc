"""evaluate and predict."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from alray.runtime.workload import Workload


@pytest.mark.full
def test_evaluate_measures_what_the_run_measured(alray: Callable[..., Any], ended: Path) -> None:
    said = alray("evaluate", ended, "--json").json
    recorded = json.loads((ended / "summary.json").read_text())["accuracy_per_depth"]
    assert said["step"] == 18
    assert said["weights"] == {"step": 18, "which": "last"}
    assert said["accuracy_per_depth"] == [{**entry, "train": None} for entry in recorded]


def test_evaluate_one_route(alray: Callable[..., Any], ended: Path) -> None:
    lines = alray("evaluate", ended, "--depth", "2").out.splitlines()
    assert lines[0] == "weights after 18 mini-batches (the last checkpoint)"
    assert [line.split()[0] for line in lines[1:]] == ["depth", "2"]


@pytest.mark.parametrize("depth", ["0", "4", "-1"])
def test_a_route_that_is_not_there(alray: Callable[..., Any], ended: Path, depth: str) -> None:
    said = alray("evaluate", ended, f"--depth={depth}", "--json")
    assert (said.code, said.json["errors"][0]["key"]) == (2, "--depth")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("evaluate", "--depth", "9"), "--depth: there is no route of depth 9; "),
        (("evaluate", "--step", "7"), "--step: there is no checkpoint after 7 mini-batches; "),
        (("predict", "nowhere.png"), "nowhere.png: the file does not exist; "),
        (("export", "--format", "onx"), "--format: `onx` is not a format; did you mean `onnx`?"),
        (("export", "--format", "onnx", "--depth", "0"), "--depth: there is no route of depth 0; "),
    ],
)
def test_what_the_files_of_a_run_refuse_is_told_before_torch_is_there(
    alray: Callable[..., Any], ended: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    for module in ("network", "export", "requests"):
        monkeypatch.setitem(sys.modules, f"alray.inference.{module}", None)  # importing it fails
    command, *rest = arguments
    answer = alray(command, ended, *rest)
    assert answer.code == 2 and answer.errors.startswith(said), answer.errors


def test_predict(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    Image.new("L", (4, 4), 128).save(picture)
    said = alray("predict", ended, picture, "--json").json
    assert said["weights"] == {"step": 18, "which": "last"}
    (deep,) = said["predictions"]
    assert set(deep) == {"input", "label", "class_index", "score", "depth"}
    assert (deep["input"], deep["depth"]) == (str(picture), 3)
    said = alray("predict", ended, picture, picture, "--depth", "1")
    assert said.code == 0
    assert [line.split(": ")[0] for line in said.out.splitlines()] == [str(picture)] * 2
    assert said.err.startswith("weights after 18 mini-batches")
    missing = alray("predict", ended, tmp_path / "b.png")
    assert (missing.code, missing.errors.split(":")[0]) == (2, str(tmp_path / "b.png"))
    folder = alray("predict", ended, tmp_path)
    assert (folder.code, folder.errors.split(":")[0]) == (2, str(tmp_path))


def test_a_checkpoint_that_the_run_deletes_meanwhile(
    alray: Callable[..., Any], ended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the data are opened the run writes the checkpoint after 18 mini-batches, and deletes that after 9."""
    run, later = shutil.copytree(ended, tmp_path / "run"), tmp_path / "later"
    (run / "checkpoints/step-00000018").rename(later)
    opened = Workload.open

    def opening(*given: Any, **more: Any) -> Workload:
        if later.exists():
            later.rename(run / "checkpoints/step-00000018")
            shutil.rmtree(run / "checkpoints/step-00000009")
        return opened(*given, **more)

    monkeypatch.setattr(Workload, "open", opening)
    said = alray("evaluate", run, "--json").json
    assert said["weights"] == {"step": 18, "which": "last"} and said["step"] == 18
    (run / "checkpoints/step-00000018/component-00.safetensors").unlink()
    assert "a file of this checkpoint is missing" in alray("evaluate", run).errors


@pytest.mark.full
def test_the_weights_that_were_asked_for(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    """The tiny run has an evaluation and a checkpoint after each of its two epochs."""
    best = json.loads((ended / "summary.json").read_text())["best"]
    said = alray("evaluate", ended, "--best", "--json").json
    assert said["weights"] == {"step": best["step"], "which": "best"}
    whole = said["accuracy_per_depth"][-1]
    assert (whole["validation"], whole["test"]) == (best["validation"], best["test"])
    assert alray("evaluate", ended, "--step", "9").out.splitlines()[0].startswith("weights after 9 mini-batches")
    picture, route = tmp_path / "a.png", tmp_path / "route.safetensors"
    Image.new("L", (4, 4), 128).save(picture)
    said = alray("export", ended, "--format", "safetensors", "--step", "9", "--output", route, "--json").json
    assert said["weights"] == {"step": 9, "which": "step"}
    early = alray("predict", ended, picture, "--step", "9", "--json").json
    exported = alray("predict", route, picture, "--json").json
    assert exported["weights"] == {"step": 9, "which": "exported"}
    assert exported["predictions"][0]["score"] == pytest.approx(early["predictions"][0]["score"])
    last = alray("predict", ended, picture, "--json").json
    assert last["predictions"][0]["score"] != early["predictions"][0]["score"]


@pytest.mark.parametrize("options", [("--step", "10"), ("--best", "--step", "9"), ("--step", "0")])
def test_weights_that_are_not_there(alray: Callable[..., Any], ended: Path, options: tuple[str, ...]) -> None:
    said = alray("evaluate", ended, *options, "--json")
    (problem,) = said.json["errors"]
    assert (said.code, problem["key"]) == (2, "--step")
    assert problem["hint"]
