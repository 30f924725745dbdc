"""The data of a run in another folder, and other data in the same folder."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from alray.api.runs import load_run

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

LISTED = '''
"""A source that reads a file."""

import torch


class Listed:
    classes = ("a", "b")

    def __init__(self, place, default=None):
        with open(default or place) as file:
            self.numbers = [float(line) for line in file]

    def open(self, split):
        if split == "test":
            return None
        return [(torch.full((4,), number), place % 2) for place, number in enumerate(self.numbers)]
'''

LAYERS = ("model.components=[{block: mlp, widths: [8]}, {block: mlp, widths: [4]}]",)
PICTURES = ("data={source: image_folder, train: photos, image_size: 4, batch_size: 8}", *LAYERS)


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


def photos(folder: Path) -> None:
    for label in "ab":
        (folder / label).mkdir(parents=True)
        for number in range(20):
            Image.new("L", (4, 4), 10 * number).save(folder / label / f"{number:02}.png")


def run(alray: Callable[..., Any], folder: str, *overrides: str) -> Any:
    said = alray("run", "s.yaml", "--inline", "--json", "--output", folder, *overrides)
    assert said.code == 0, said.err
    return said.json


@pytest.mark.full
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
    assert alray("export", "part", "--format", "safetensors").code == 0, "no data are opened"
    overrides = ("data.train=there/train.csv", "data.test=there/test.csv", "run.steps=12")
    assert alray("resume", "part", "--inline", "--json", *overrides).json["weights_sha256"] == whole["weights_sha256"]
    assert alray("evaluate", "part").code == 0, "the run folder has the new paths now"


def test_a_key_that_is_no_place(alray: Callable[..., Any], here: Path) -> None:
    run(alray, "run", "run.steps=4")
    said = alray("evaluate", "run", "--data", "batch_size=3")
    assert "batch_size" in said.errors and said.errors.endswith("train, test\n")
    said = alray("evaluate", "run", "--data", "train")
    assert said.errors.startswith("--data: `train` does not have the form KEY=PATH; ")
    for place in ("train=train.csv", ["train=train.csv"]):
        assert load_run("run").trained(data=place).predict("word1 word2")


@pytest.mark.full
def test_a_place_is_taken_as_it_is_written(alray: Callable[..., Any], here: Path) -> None:
    """And not read as YAML, in which these are other values."""
    run(alray, "run", "run.steps=4")
    place = here / "train.csv"
    for name in ("#1.csv", "a: b, c.csv", "[2024]", "1e3", "a #b", " a=b.csv", "'x.csv", "\udce9.csv"):
        place = place.rename(here / name)
        assert alray("predict", "run", "word1 word2", "--data", f"train={name}").code == 0
    assert load_run("run").trained(data={"train": Path(name)}).predict("word1 word2")


def test_files_that_are_not_there(alray: Callable[..., Any], here: Path) -> None:
    """All of them are named at once, each where its place was given, and how the command takes another."""
    run(alray, "run", "run.steps=4")
    (here / "train.csv").unlink()
    (here / "test.csv").unlink()
    said = alray("evaluate", "run", "--data", "train=nowhere.csv")
    assert f"--data: there is no file `{here / 'nowhere.csv'}`; correct the path" in said.errors
    assert f"data.test: there is no file `{here / 'test.csv'}`; say where it lies now: --data test=PATH" in said.errors
    for command in ("resume", "reproduce"):
        said = alray(command, "run", "--inline", "data.train=nowhere.csv")
        assert f"command line: data.train: there is no file `{here / 'nowhere.csv'}`" in said.errors
        assert said.errors.count("say where it lies now: data.test=PATH") == 1


def test_no_test_set_here(alray: Callable[..., Any], here: Path) -> None:
    run(alray, "run", "run.steps=4")
    (here / "test.csv").unlink()
    accuracies = alray("evaluate", "run", "--data", "test=null", "--json").json["accuracy_per_depth"]
    assert [entry["test"] for entry in accuracies] == [None, None]


@pytest.mark.full
def test_a_run_is_reproduced_where_its_files_lie_now(alray: Callable[..., Any], here: Path) -> None:
    run(alray, "run", "run.steps=4")
    (here / "train.csv").rename(here / "moved.csv")
    said = alray("reproduce", "run", "--output", "again", "data.train=moved.csv", "--json")
    assert said.json["same"]
    documents(here / "train.csv", 150, 2)
    said = alray("reproduce", "run", "data.train=train.csv", "--json")
    assert not said.json["same"]
    assert "135 training samples, before 180; 15 validation" in said.err
    refused = alray("reproduce", "run", "data.train_fraction=0.5")
    assert "`data.train_fraction` from 1.0 to 0.5" in refused.errors


@pytest.mark.full
def test_the_files_of_an_own_class(alray: Callable[..., Any], here: Path) -> None:
    (here / "listed.py").write_text(LISTED)
    (here / "#numbers").write_text("".join(f"{number}\n" for number in range(30)))
    run(alray, "run", "data={source: 'python:listed.Listed', place: '#numbers', batch_size: 8}", *LAYERS, "run.steps=4")
    (here / "#numbers").rename(here / "#others")
    said = alray("evaluate", "run")
    assert "--data place=PATH" in said.errors
    for key in ("place", "default"):
        assert alray("evaluate", "run", "--data", f"{key}=#others").code == 0
    assert "unexpected keyword argument 'plaec'" in alray("evaluate", "run", "--data", "plaec=#others").errors
    assert "these keys do: place" in alray("evaluate", "run", "--data", "batch_size=3").errors
    place = "data.place='#others'"
    said = alray("resume", "run", "--inline", place)
    assert "--allow-change" in said.errors
    assert alray("resume", "run", "--inline", place, "--allow-change").code == 0


@pytest.mark.full
def test_changes_that_are_allowed(alray: Callable[..., Any], here: Path) -> None:
    """With --allow-change a run goes on with other classes and shapes if its weights fit, but not with other words."""
    run(alray, "run", "run.steps=4")
    said = alray("resume", "run", "--inline", "run.steps=6", "data.text.max_tokens=4", "--allow-change")
    assert said.code == 0
    assert "for the data changed: samples of shape [4], before [6]" in said.err
    said = alray("resume", "run", "--inline", "run.steps=8", "data.train_fraction=0.1", "--allow-change")
    assert "command line: data.train_fraction: " in said.errors and "18 training" in said.errors
    assert "another vocabulary" in said.errors
    photos(here / "photos")
    run(alray, "pictures", *PICTURES, "run.steps=4")
    (here / "photos/a").rename(here / "photos/c")
    said = alray("resume", "pictures", "--inline", "run.steps=6", "--allow-change")
    assert "for the data changed: other classes" in said.err


def test_samples_that_nothing_measured_depends_on(alray: Callable[..., Any], here: Path) -> None:
    """Without a validation split, `evaluate` measures the test set alone."""
    photos(here / "photos")
    photos(here / "test")
    tested = ("data.test=test", "data.validation_fraction=0")
    run(alray, "run", *PICTURES, *tested, "run.steps=4")
    (here / "photos/a/03.png").unlink()
    assert alray("evaluate", "run").code == 0


def test_an_exported_route_needs_no_data(alray: Callable[..., Any], here: Path) -> None:
    run(alray, "run", "run.steps=4")
    assert alray("export", "run", "--format", "safetensors", "--output", "route.safetensors").code == 0
    said = alray("predict", "route.safetensors", "word1 word2", "--data", "train=train.csv")
    assert said.errors.startswith("route.safetensors: --data: ")


@pytest.mark.full
def test_files_that_changed_are_not_the_data_of_the_run(alray: Callable[..., Any], here: Path) -> None:
    """The vocabulary is the same, so the network can read them: a resume may be forced, and says what it comes to."""
    run(alray, "run", "run.steps=8")
    lines = (here / "train.csv").read_text().splitlines()
    (here / "train.csv").write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    said = alray("resume", "run", "--inline", "run.steps=12")
    assert said.code == 2
    assert "data: these are not the data of this run: other samples" in said.errors
    assert alray("evaluate", "run").code == 2, "the validation split would have samples of the training"
    assert alray("predict", "run", "word1 word2").code == 0
    said = alray("resume", "run", "--inline", "run.steps=12", "--allow-change")
    assert said.code == 0
    assert "for the data changed: other samples" in said.err


def test_other_words_are_not_read_at_all(alray: Callable[..., Any], here: Path) -> None:
    run(alray, "run", "run.steps=8")
    documents(here / "train.csv", 200, 2)
    for command in (("resume", "run", "--inline", "--allow-change"), ("evaluate", "run")):
        said = alray(*command)
        assert said.code == 2
        assert "these are not the data of this run: another vocabulary; " in said.errors
    assert alray("predict", "run", "word1").code == 0  # by the run's own words, without the data


def test_pictures_in_files_count_by_their_names(alray: Callable[..., Any], here: Path) -> None:
    photos(here / "photos")
    run(alray, "run", *PICTURES, "run.steps=4")
    (here / "photos").rename(here / "moved")
    assert alray("resume", "run", "--inline", "data.train=moved", "run.steps=5").code == 0
    (here / "moved" / "a" / "03.png").rename(here / "moved" / "b" / "33.png")
    said = alray("resume", "run", "--inline", "run.steps=6")
    assert "these are not the data of this run: other samples" in said.errors


def test_data_that_change_between_the_plan_and_the_run(alray: Callable[..., Any], here: Path) -> None:
    """As on a node with other files than that of the driver."""
    (here / "growing.py").write_text(COUNTING)
    said = alray("run", "s.yaml", "--inline", "data={source: 'python:growing.Growing', batch_size: 8}", *LAYERS)
    assert said.code == 1
    assert "29 training samples, before 28; " in said.errors
