"""predict, of a network for text: lines and files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from alray.cli.main import execute

from ..models.test_text_networks import FOR_ONE_LENGTH

TEXT = """\
name: text
data: {source: text_csv, train: train.csv, batch_size: 8, text: {max_tokens: 6}}
model: {components: [{block: embedding, dim: 8}, {block: mlp, widths: [8]}]}
method: {kind: associated_learning, label_dim: 4}
optimizer: {kind: adam, lr: 3.0e-2}
pipeline: {costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
run: {epochs: 12}
"""


@pytest.fixture(scope="session")
def trained_on_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has learnt to tell fruit from tools."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "classes.txt").write_text("fruit\ntool\n")
    words = (("apple", "pear", "plum"), ("hammer", "saw", "drill"))
    lines = [f'"{i % 2 + 1}","the {words[i % 2][i % 3]}","and a {words[i % 2][i // 2 % 3]}"\n' for i in range(120)]
    (folder / "train.csv").write_text("".join(lines))
    (folder / "text.yaml").write_text(TEXT)
    assert execute(["run", str(folder / "text.yaml"), "--inline", "--output", str(folder / "run")]) == 0
    return folder / "run"


@pytest.mark.full
def test_lines_and_files(alray: Callable[..., Any], trained_on_text: Path, tmp_path: Path) -> None:
    (tmp_path / "review.txt").write_text("A drill\nand a saw", encoding="utf-8")
    inputs = ["the Apple and a pear", str(tmp_path / "review.txt"), "", "a" * 5000, "//plum//saw"]
    said = alray("predict", trained_on_text, "--json", "--", *inputs)
    assert said.code == 0
    predictions = said.json["predictions"]
    assert [prediction["input"] for prediction in predictions] == inputs
    assert [prediction["label"] for prediction in predictions[:2]] == ["fruit", "tool"]
    assert predictions[0]["score"] > 0.8
    # Empty, and one unknown word: the same sample.
    assert predictions[2]["score"] == predictions[3]["score"]
    assert {prediction["depth"] for prediction in predictions} == {2}
    shallow = alray("predict", trained_on_text, "the apple", "--depth", "1")
    assert shallow.out.startswith("the apple: fruit (")


@pytest.mark.full
def test_the_names_of_a_file_are_those_of_the_answer(alray: Callable[..., Any], tmp_path: Path) -> None:
    """A header, and classes by name in the second column: the summary lists them, and predictions answer with them."""
    words = {"tool": ("hammer", "saw"), "fruit": ("apple", "pear")}
    lines = [f"the {word},{name}\n" for name, group in words.items() for word in group * 20]
    (tmp_path / "train.csv").write_text("text,kind\n" + "".join(lines), encoding="utf-8")
    text = TEXT.replace("train: train.csv", "train: train.csv, label_column: kind")
    (tmp_path / "text.yaml").write_text(text, encoding="utf-8")
    assert alray("run", tmp_path / "text.yaml", "--inline", "--output", tmp_path / "run").code == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["classes"] == ["fruit", "tool"]
    (found,) = alray("predict", tmp_path / "run", "the saw", "--json").json["predictions"]
    assert (found["label"], found["class_index"]) == ("tool", 1)
    assert alray("predict", tmp_path / "run", "the pear").out.startswith("the pear: fruit (")


@pytest.mark.full
def test_a_file_that_is_not_text(alray: Callable[..., Any], trained_on_text: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    said = alray("predict", trained_on_text, tmp_path / "a.txt", "--json")
    assert said.code == 2
    (problem,) = said.json["errors"]
    assert (problem["file"], problem["line"]) == (str(tmp_path / "a.txt"), 1)


def test_the_name_of_a_file_that_is_not_there_is_no_text(
    alray: Callable[..., Any], trained_on_text: Path, tmp_path: Path
) -> None:
    said = alray("predict", trained_on_text, tmp_path / "reveiw.txt", "--json")
    assert said.code == 2
    (problem,) = said.json["errors"]
    assert problem["file"] == str(tmp_path / "reveiw.txt")
    assert alray("predict", trained_on_text, "see review.txt").code == 0


@pytest.mark.full
def test_a_pipeline_that_padded_its_texts_gets_padded_ones(
    alray: Callable[..., Any], trained_on_text: Path, tmp_path: Path
) -> None:
    """A block may need rows of `max_tokens` then. So it is with the exported route."""
    (tmp_path / "own_mixes.py").write_text(FOR_ONE_LENGTH)
    text = TEXT.replace("{block: mlp, widths: [8]}", "{block: 'python:own_mixes.Mixes'}").replace(
        "epochs: 12", "steps: 2"
    )
    text = text.replace("train.csv", str(trained_on_text.parent / "train.csv")).replace(
        "{kind: ass", "backpropagation # "
    )
    (tmp_path / "text.yaml").write_text(text.replace("{costs", "{schedule: gpipe, micro_batches: 2, costs"))
    assert alray("run", tmp_path / "text.yaml", "--inline", "--output", tmp_path / "run").code == 0
    of_run = alray("predict", tmp_path / "run", "the saw", "--json").json["predictions"]
    route = alray("export", tmp_path / "run", "--format", "safetensors", "--output", tmp_path / "route.safetensors")
    assert route.code == 0
    assert (
        alray("predict", tmp_path / "route.safetensors", "the saw", "--json", "--allow-code").json["predictions"]
        == of_run
    )
    said = alray("export", tmp_path / "run", "--format", "torch_export", "--json")
    assert said.code == 2


def test_a_compiled_network_predicts_without_a_compiler(
    alray: Callable[..., Any], trained_on_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compile takes long, and the machine that predicts need not be the one that trained."""
    run = tmp_path / "run"
    shutil.copytree(trained_on_text, run)
    spec = run / "spec.yaml"
    spec.write_text(spec.read_text().replace("compile: false", "compile: true"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert alray("predict", run, "the saw").out == alray("predict", trained_on_text, "the saw").out
    assert alray("export", run, "--format", "safetensors").code == 0
    assert "needs a C++ compiler" in alray("evaluate", run).err
