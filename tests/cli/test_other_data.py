"""The data of a run in another place, and other data in the same place."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

TEXT = """\
name: moved
data: {source: text_csv, train: train.csv, test: test.csv, header: false, batch_size: 16, text: {max_tokens: 6}}
model: {components: [{block: embedding, dim: 8}, {block: lstm, hidden: 8}]}
method: {kind: associated_learning, label_dim: 4}
pipeline: {stages: 2, costs: [&cost {forward_s: 1e-3, backward_s: 1e-3, update_s: 1e-3}, *cost]}
run: {steps: 12, checkpoint: {every: 4 steps}}
"""

COUNTING = '''
"""A source that has one sample more whenever it is opened again."""

import torch

opened = []


class Growing:
    classes = ("a", "b")

    def open(self, split):
        if split == "test":
            return None
        opened.append(split)
        return [(torch.ones(4) * number, number % 2) for number in range(30 + len(opened))]
'''


def documents(file: Path, count: int, seed: int) -> None:
    draw = random.Random(seed)
    words = [f"word{number}" for number in range(30)]
    file.write_text("".join(f"{each % 2},{' '.join(draw.choices(words, k=6))}\n" for each in range(count)))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a spec, its files, and a run of eight mini-batches."""
    monkeypatch.chdir(tmp_path)
    documents(tmp_path / "train.csv", 200, 0)
    documents(tmp_path / "test.csv", 40, 1)
    (tmp_path / "s.yaml").write_text(TEXT)
    return tmp_path


def run(alray: Callable[..., Any], folder: str, *overrides: str) -> Any:
    said = alray("run", "s.yaml", "--inline", "--json", "--run-dir", folder, *overrides)
    assert said.code == 0, said.err
    return said.json


def test_the_same_files_in_another_place(alray: Callable[..., Any], here: Path) -> None:
    """Paths that the command line gives begin in the current folder. A resume there ends in the same bits."""
    whole = run(alray, "whole")
    run(alray, "part", "run.steps=8")
    before = alray("evaluate", "part", "--json").json
    (here / "there").mkdir()
    for name in ("train.csv", "test.csv"):
        (here / name).rename(here / "there" / name)
    places = ("--data", "train=there/train.csv", "--data", "test=there/test.csv")
    assert alray("evaluate", "part").code == 2
    after = alray("evaluate", "part", *places, "--json").json
    assert after["accuracy_per_depth"] == before["accuracy_per_depth"]
    assert alray("predict", "part", "word1 word2", *places).code == 0
    assert alray("export", "part", "--format", "safetensors", *places).code == 0
    overrides = ("data.train=there/train.csv", "data.test=there/test.csv", "run.steps=12")
    assert alray("resume", "part", "--inline", "--json", *overrides).json["weights_sha256"] == whole["weights_sha256"]
    assert alray("evaluate", "part").code == 0, "the run folder has the new places now"


def test_a_key_that_is_no_place(alray: Callable[..., Any], here: Path) -> None:
    run(alray, "run", "run.steps=4")
    said = alray("evaluate", "run", "--data", "batch_size=3")
    assert said.errors.endswith("does not say where the data of this run lie; these keys do: test, train\n")


def test_files_that_changed_are_not_the_data_of_the_run(alray: Callable[..., Any], here: Path) -> None:
    """The vocabulary is the same, so the network can read them: a resume may be forced, and says what it comes to."""
    run(alray, "run", "run.steps=8")
    lines = (here / "train.csv").read_text().splitlines()
    (here / "train.csv").write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    said = alray("resume", "run", "--inline", "run.steps=12")
    assert said.code == 2
    assert "data: these are not the data of this run: other samples, or the same in another order; " in said.errors
    assert alray("evaluate", "run").code == 2, "the validation split would have samples of the training"
    assert alray("predict", "run", "word1 word2").code == 0
    said = alray("resume", "run", "--inline", "run.steps=12", "--allow-change")
    assert said.code == 0
    assert "for the data changed: other samples" in said.err


def test_other_words_are_not_read_at_all(alray: Callable[..., Any], here: Path) -> None:
    run(alray, "run", "run.steps=8")
    documents(here / "train.csv", 200, 2)
    for command in (("resume", "run", "--inline", "--allow-change"), ("predict", "run", "word1"), ("evaluate", "run")):
        said = alray(*command)
        assert said.code == 2
        assert "these are not the data of this run: another vocabulary; " in said.errors


def test_pictures_in_files_count_by_their_names(alray: Callable[..., Any], here: Path) -> None:
    for label in "ab":
        (here / "photos" / label).mkdir(parents=True)
        for number in range(20):
            Image.new("L", (4, 4), 10 * number).save(here / "photos" / label / f"{number:02}.png")
    pictures = ("data={source: image_folder, train: photos, image_size: 4, batch_size: 8}",)
    layers = ("model.components=[{block: mlp, widths: [8]}, {block: mlp, widths: [4]}]",)
    run(alray, "run", *pictures, *layers, "run.steps=4")
    (here / "photos").rename(here / "moved")
    assert alray("resume", "run", "--inline", "data.train=moved", "run.steps=5").code == 0
    (here / "moved" / "a" / "03.png").rename(here / "moved" / "b" / "33.png")
    said = alray("resume", "run", "--inline", "run.steps=6")
    assert "these are not the data of this run: other samples" in said.errors


def test_data_that_change_between_the_plan_and_the_run(alray: Callable[..., Any], here: Path) -> None:
    """As on a node with other files than that of the driver."""
    (here / "growing.py").write_text(COUNTING)
    source = ("data={source: 'python:growing.Growing', batch_size: 8}",)
    layers = ("model.components=[{block: mlp, widths: [8]}, {block: mlp, widths: [4]}]",)
    said = alray("run", "s.yaml", "--inline", *source, *layers)
    assert said.code == 1
    assert "data: these are not the data of the run as it began: 29 training samples, before 28; " in said.errors
