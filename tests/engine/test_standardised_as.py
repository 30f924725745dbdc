"""A run keeps the means and deviations that it began with: where it is resumed, done again, evaluated and asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from safetensors import safe_open

import alray
from alray.config.loading.load import read_document
from alray.core.run_folder.records import replace_file

KEYS = {"name": "rows", "seed": 1, "optimizer": {"lr": 0.01}, "method": "backpropagation"}
MODEL = {"components": [{"block": "mlp", "widths": [6]}, {"block": "mlp", "widths": [6]}]}


@pytest.fixture(autouse=True)
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> numpy.ndarray:
    """The numbers of a table, `[60, 2]`, a few of which are far from the others."""
    monkeypatch.chdir(tmp_path)
    found = numpy.random.default_rng(0).normal(size=(60, 2)).astype(numpy.float32)
    found[::17] *= 100
    lines = [f"{a!s},{b!s},{int(a > b)}" for a, b in found]
    Path("rows.csv").write_text("\n".join(["a,b,label", *lines]) + "\n")
    return found


def started(output: str, epochs: int, **data: Any) -> alray.Run:
    table = {"source": "table", "train": "rows.csv", "batch_size": 10, "validation_fraction": 0.5, **data}
    spec = {**KEYS, "data": table, "model": MODEL, "run": {"epochs": epochs, "checkpoint": {"every": "1 epoch"}}}
    return alray.run(spec, inline=True, output=output, progress=False)


def header_of(file: str | Path) -> dict[str, str]:
    """What an exported file says of its network and its input. The order of its entries in the file is by chance."""
    with safe_open(file, "pt") as opened:
        return dict(opened.metadata())


def test_a_run_goes_on_and_is_done_again_with_its_own_constants(rows) -> None:
    """Which another version of alray may have computed in another way."""
    run = started("run", 1)
    own = Path("run/sample.json")
    form = json.loads(own.read_text())
    form["input"] |= {"mean": [1.5, -2.5], "std": [3.0, 0.5]}
    own.write_text(json.dumps(form))
    run = run.resume({"run.epochs": 2}, inline=True, progress=False)
    assert json.loads(own.read_text()) == form
    found = alray.reproduce(run, inline=True, output="again", progress=False)
    assert json.loads(Path("again/sample.json").read_text()) == form
    assert not found.same  # the first epoch had other constants
    unbroken = started("unbroken", 2, normalise={"mean": [1.5, -2.5], "deviation": [3.0, 0.5]})
    assert found.weights_sha256[1] == unbroken.summary.weights_sha256


@pytest.mark.parametrize(
    "change",
    [
        {"data.workers": 1},
        {"data.batch_size": 15},
        {"data.train": "moved.csv"},
        {"data.test": "moved.csv"},
        {"task.metric": "macro_f1"},
    ],
)
def test_they_are_the_same_where_a_change_does_not_decide_them(change: dict[str, Any]) -> None:
    run = started("run", 1)
    own = Path("run/sample.json")
    form = json.loads(own.read_text())
    Path("moved.csv").write_bytes(Path("rows.csv").read_bytes())
    run.resume({"run.epochs": 2, **change}, allow_change=True, inline=True, progress=False)
    assert json.loads(own.read_text()) == form


def test_constants_that_are_written_into_the_spec_of_a_run_hold() -> None:
    run = started("run", 1)
    spec = dict(read_document(run.folder / "spec.yaml").value)
    spec["data"] = {**spec["data"], "normalise": {"mean": [1.5, -2.5], "deviation": [3.0, 0.5]}}
    replace_file(run.folder / "spec.yaml", json.dumps(spec))
    run.resume({"run.epochs": 2}, allow_change=True, inline=True, progress=False)
    written = json.loads(Path("run/sample.json").read_text())["input"]
    assert (written["mean"], written["std"]) == ([1.5, -2.5], [3.0, 0.5])


def constants(output: str) -> tuple[list[float], list[float]]:
    """Means and deviations of a run."""
    form = json.loads(Path(output, "sample.json").read_text())["input"]
    return form["mean"], form["std"]


def changed_by_hand(run: alray.Run, **data: Any) -> None:
    """`spec.yaml` with other keys of `data`, as a person may leave it."""
    spec = dict(read_document(run.folder / "spec.yaml").value)
    spec["data"] = {**spec["data"], **data}
    replace_file(run.folder / "spec.yaml", json.dumps(spec))


def gone_on(run: alray.Run, capsys: pytest.CaptureFixture[str], **changes: Any) -> str:
    """The lines of a resume, with whatever changes."""
    capsys.readouterr()
    run.resume({"run.epochs": 2, **changes}, allow_change=True, inline=True)
    found = capsys.readouterr()
    return " ".join((found.out + found.err).split())


SPLIT = {"columns": ["b", "a"]}, {"validation_fraction": 0.2}
STANDARDISED_ANEW = "samples or targets are standardised by other means and deviations"


@pytest.mark.parametrize("change", [*SPLIT, {"seed": 5}])
def test_they_are_computed_anew_where_a_change_decides_them(change: dict[str, Any], capsys) -> None:
    run, unlike = started("run", 1), constants("run")
    said = gone_on(run, capsys, **{key if key == "seed" else f"data.{key}": value for key, value in change.items()})
    assert constants("run") != unlike and STANDARDISED_ANEW in said
    whole = {**KEYS, "seed": change.get("seed", KEYS["seed"])}
    data = {"source": "table", "train": "rows.csv", "batch_size": 10, "validation_fraction": 0.5}
    data |= {key: value for key, value in change.items() if key != "seed"}
    alray.run({**whole, "data": data, "model": MODEL, "run": {"epochs": 1}}, inline=True, output="other")
    assert constants("run") == constants("other")


@pytest.mark.parametrize("change", SPLIT)
def test_they_are_computed_anew_where_a_hand_has_changed_the_spec(change: dict[str, Any], capsys) -> None:
    run = started("run", 1)
    changed_by_hand(run, **change)
    assert STANDARDISED_ANEW in gone_on(run, capsys)
    started("other", 1, **change)
    assert constants("run") == constants("other")


def test_they_are_computed_anew_where_a_hand_has_removed_them_from_the_spec(capsys) -> None:
    run = started("run", 1, normalise={"mean": [1.5, -2.5], "deviation": [3.0, 0.5]})
    changed_by_hand(run, normalise=None)
    assert STANDARDISED_ANEW in gone_on(run, capsys)
    started("other", 1)
    assert constants("run") == constants("other")


@pytest.mark.parametrize(("swapped", "file"), [(True, "other.csv"), (False, "rows.csv")])
def test_they_are_computed_anew_for_another_training_file(rows, capsys, swapped: bool, file: str) -> None:
    """Whose columns are others, or whose numbers are."""
    run = started("run", 1)
    lines = [f"{b},{a},{int(a > b)}" if swapped else f"{7 * a + 50},{7 * b},{int(a > b)}" for a, b in rows]
    Path(file).write_text("\n".join(["b,a,label" if swapped else "a,b,label", *lines]) + "\n")
    said = gone_on(run, capsys, **{"data.train": file})
    assert STANDARDISED_ANEW in said and "the data changed" in said
    started("other", 1, train=file)
    assert constants("run") == constants("other")


OWN = """
import torch
from alray.data.dataset import Normalisation
class Mine:
    def __init__(self, mixture):
        self.mixture = mixture
    classes = ("a", "b")
    @property
    def normalisation(self):
        return Normalisation([self.mixture, 0.0], [1.0, 1.0])
    def open(self, split):
        return torch.utils.data.TensorDataset(torch.randn(60, 2), torch.arange(60) % 2) if split == "train" else None
"""


def test_an_argument_of_an_own_class_that_begins_as_another_key_decides_them(capsys) -> None:
    Path("mine.py").write_text(OWN)
    data = {"source": "python:mine.Mine", "batch_size": 10, "validation_fraction": 0.5, "mixture": 1.0}
    spec = {**KEYS, "data": data, "model": MODEL, "run": {"epochs": 1}}
    run = alray.run(spec, inline=True, output="run", progress=False)
    assert STANDARDISED_ANEW not in gone_on(run, capsys)
    assert STANDARDISED_ANEW in gone_on(run, capsys, **{"run.epochs": 3, "data.mixture": 100.0})
    assert constants("run")[0] == [100.0, 0.0]
