"""validate, schema and init."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from alray.config.loading.load import load_spec
from alray.config.loading.yaml_text import read_yaml
from alray.config.schema import schema_text
from alray.core.run_folder.records import json_schema


def test_validate_says_what_a_spec_is(alray: Callable[..., Any], spec: Path) -> None:
    assert alray("validate", spec) == (0, "x.yaml: ok (associated_learning, streamed, 3 components, 2 stages)\n", "")
    assert alray("validate", spec, "--json").json == {
        "ok": True,
        "specs": [
            {
                "file": "x.yaml",
                "method": "associated_learning",
                "schedule": "streamed",
                "components": 3,
                "stages": 2,
            }
        ],
    }


def test_validate_tells_every_problem_of_every_file(alray: Callable[..., Any], spec: Path) -> None:
    text = spec.read_text().replace("stages: 2", "stagse: 2").replace("epochs: 2", "epochs: none")
    Path("y.yaml").write_text(text)
    said = alray("validate", "y.yaml", spec, "nothing.yaml")
    assert said.code == 2
    assert said.out.startswith("x.yaml: ok")
    places = ["y.yaml:9: pipeline.stagse: ", "y.yaml:10: run.epochs: ", "nothing.yaml: ", "3 errors"]
    for line, place in zip(said.errors.replace("\n\n", "\n").splitlines(), places, strict=True):
        assert line.startswith(place)
    errors = alray("validate", "y.yaml", "--json").json["errors"]
    assert [(error["file"], error["line"], error["key"]) for error in errors] == [
        ("y.yaml", 9, "pipeline.stagse"),
        ("y.yaml", 10, "run.epochs"),
    ]


OWN = """\
raise_if_run = 1 / {run}

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, input, by):
        super().__init__()
        self.by = nn.Parameter(torch.full(tuple(input), float(by)))

    def forward(self, s):
        return s * self.by
"""


def test_blanks_around_an_equals_sign_are_one_error(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("validate", spec, "optimizer.lr", "=", "0.1", "--json").json
    assert [problem["message"] for problem in said["errors"]] == ["`optimizer.lr = 0.1` has blanks around `=`"]


def test_validate_looks_for_data_and_modules_and_runs_nothing(alray: Callable[..., Any], spec: Path) -> None:
    text = spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:owm.Scale', by: 2}", 1)
    data = text.splitlines()[1]
    Path("own.py").write_text(OWN.format(run=0))
    Path("y.yaml").write_text(text.replace(data, "data: {source: image_folder, train: pictures, image_size: 4}"))
    said = alray("validate", "y.yaml", "--json")
    assert (said.code, said.err) == (2, "")
    assert [(error["file"], error["line"], error["key"]) for error in said.json["errors"]] == [
        ("y.yaml", 2, "data.train"),
        ("y.yaml", 5, "model.components[0].block"),
    ]
    assert said.json["errors"][0]["message"] == f"there is no folder `{Path.cwd() / 'pictures'}`"
    assert "no module `owm`" in said.json["errors"][1]["message"]
    Path("pictures").mkdir()
    Path("y.yaml").write_text(Path("y.yaml").read_text().replace("owm", "own"))
    assert alray("validate", "y.yaml").code == 0


def test_validate_deep_opens_the_data_and_builds_the_network(alray: Callable[..., Any], spec: Path) -> None:
    text = spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:own_deep.Scale', by: 2}", 1)
    Path("own_deep.py").write_text(OWN.format(run=1))
    Path("y.yaml").write_text(text)
    said = alray("validate", "y.yaml", "--deep")
    assert said.out.startswith("y.yaml: ok (") and "90 training samples" in said.out
    assert alray("validate", "y.yaml", "--deep", "--json").json["specs"][0]["samples"] == 90
    Path("y.yaml").write_text(text.replace("by: 2", "bye: 2"))
    Path("folder").mkdir()
    data = "data: {source: image_folder, train: folder, image_size: 4}"
    Path("z.yaml").write_text(text.replace(text.splitlines()[1], data))
    assert alray("validate", "y.yaml", "z.yaml").code == 0
    said = alray("validate", "y.yaml", "z.yaml", "--deep")
    assert said.code == 2
    block, _, folder = said.errors.splitlines()[-5:-2]
    assert block.startswith("y.yaml:5: model.components[0]: block `python:own_deep.Scale` cannot be built")
    assert folder.startswith(f"{Path.cwd() / 'folder'}: data.train: the folder has no subfolders; ")


@pytest.mark.parametrize("command", [("validate", "--deep"), ("run", "--inline")])
def test_classes_that_cannot_be_imported_are_told_at_once(
    alray: Callable[..., Any], spec: Path, command: tuple[str, str]
) -> None:
    text = spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:own_named.Scael', by: 2}", 1)
    Path("own_named.py").write_text(OWN.format(run=1))
    Path("own_broken.py").write_text("class Tracker:\n    def\n")
    Path("y.yaml").write_text(text)
    name, option = command
    said = alray(name, "y.yaml", option, "run.trackers=['python:own_broken.Tracker']", "--json")
    block, tracker = said.json["errors"]
    assert said.code == 2
    assert (block["file"], block["line"], block["key"]) == ("y.yaml", 5, "model.components[0].block")
    assert block["hint"] == "did you mean `Scale`?"
    assert tracker["key"] == "run.trackers[0].kind" and "own_broken.py, line 2" in tracker["message"]


def test_validate_deep_shows_the_override_that_a_block_refuses(alray: Callable[..., Any], spec: Path) -> None:
    text = spec.read_text().replace("{block: vgg, channels: [2]}", "{block: 'python:own_many.Scale', by: 2}", 1)
    Path("own_many.py").write_text(OWN.format(run=1))
    Path("y.yaml").write_text(text)
    said = alray("validate", "y.yaml", "--deep", "model.components[0].by=much", "run.epochs=1", "--json")
    (error,) = said.json["errors"]
    assert (error["file"], error["text"]) == ("command line", "model.components[0].by=much")
    assert error["text"][error["column"] - 1 : error["end_column"] - 1] == "much"
    two = ("model.components[0].by=2", "model.components[0].of=3")
    (error,) = alray("validate", "y.yaml", "--deep", *two, "--json").json["errors"]
    assert error["text"] == two[1], "the one that the error names"
    (error,) = alray(
        "validate", "y.yaml", "--deep", "model.components[2].channels=[3]", "data.shape=[4]", "--json"
    ).json["errors"]
    assert (error["file"], error["line"]) == ("y.yaml", 6)


ENTRIES = {
    "good": "(x, i % 3)",
    "a label that is a float": "(x, 0.5)",
    "several labels": "(x, torch.tensor([0, 1, 1]))",
    "a mask": "(x, torch.zeros(4, 4, dtype=torch.int64))",
    "a label for each token": "(x, [0, 1, 2])",
    "a label that is no class": "(x, 3 if i == 37 else 0)",
    "a label that is no class, in the test set": "(x, 3 if i == 37 and split == 'test' else 0)",
    "integers": "(x.long(), 0)",
    "a dictionary": "{'image': x, 'label': 0}",
    "a dictionary at the end": "(x, 0) if i < 39 else {'image': x}",
    "three parts": "(x, 0, 1)",
}


@pytest.mark.full
def test_validate_deep_refuses_the_samples_that_a_run_refuses(alray: Callable[..., Any], spec: Path) -> None:
    """In the same words, because the same code reads them."""
    text = spec.read_text()
    for number, (entry, written) in enumerate(ENTRIES.items()):
        lines = ["import torch", "class Own:", "    classes = ['a', 'b', 'c']", "    def open(self, split):"]
        lines.append("        return [self.read(i, torch.full((1, 4, 4), i / 40), split) for i in range(40)]")
        lines += ["    def read(self, i, x, split):", f"        return {written}"]
        Path(f"own_entries_{number}.py").write_text("\n".join(lines))
        data = f"data: {{source: 'python:own_entries_{number}.Own', batch_size: 10}}"
        Path("y.yaml").write_text(text.replace(text.splitlines()[1], data).replace("stages: 2", "stages: 1"))
        checked = alray("validate", "y.yaml", "--deep", "--json")
        ran = alray("run", "y.yaml", "--inline", "--json", "--output", f"run{number}")
        assert checked.code == (0 if entry == "good" else 2), entry
        # A run that meets a sample only after it has started has failed.
        assert ran.code in ((0,) if entry == "good" else (1, 2)), entry
        if entry != "good":
            (of_check,) = checked.json["errors"]
            of_run = ran.json["errors"][0]["message"] if ran.code == 2 else ran.err
            assert of_check["message"] in of_run and "own_entries" not in of_check["message"], entry
            assert (of_check["key"], "traceback" in of_check) == ("data", False), entry


def test_validate_deep_tells_all_broken_pictures_at_once(alray: Callable[..., Any], spec: Path) -> None:
    for split, name in itertools.product(("train", "test"), ("cat", "dog")):
        folder = Path("pictures", split, name)
        folder.mkdir(parents=True)
        for number in range(40):
            Image.new("RGB", (4, 4), number).save(folder / f"{number:02}.png")
    text = spec.read_text()
    data = "data: {source: image_folder, train: pictures/train, test: pictures/test, image_size: 4, batch_size: 10}"
    Path("y.yaml").write_text(text.replace(text.splitlines()[1], data))
    assert alray("validate", "y.yaml", "--deep").code == 0
    for broken in ("train/cat/00.png", "train/dog/39.png", "test/dog/07.png"):
        Path("pictures", broken).write_text("not a picture")
    said = alray("validate", "y.yaml", "--deep", "--json")
    assert said.code == 2
    assert [Path(error["file"]).relative_to(Path.cwd() / "pictures") for error in said.json["errors"]] == [
        Path("train/cat/00.png"), Path("train/dog/39.png"), Path("test/dog/07.png")
    ]  # fmt: skip
    assert {error["message"] for error in said.json["errors"]} == {"this is not a picture in a known format"}
    for file in Path("pictures/train/cat").iterdir():
        file.write_bytes(b"")
    errors = alray("validate", "y.yaml", "--deep", "--json").json["errors"]
    assert len(errors) == 11
    assert errors[-1]["message"] == "32 more of the pictures cannot be opened"


def test_schema(alray: Callable[..., Any]) -> None:
    assert alray("schema").out == schema_text()
    assert alray("schema", "--records", "--json").json == json_schema()


def test_init_writes_a_spec_once(alray: Callable[..., Any], spec: Path) -> None:
    first = alray("init")
    assert first.out == "quickstart.yaml: written; `alray run quickstart.yaml` runs it\n"
    assert first.err.startswith("alray.schema.json: ")
    assert load_spec("quickstart.yaml").spec.name == "quickstart"
    Path("quickstart.yaml").write_text("mine")
    again = alray("init")
    assert (again.code, again.errors.split(":")[0]) == (2, "quickstart.yaml")
    assert Path("quickstart.yaml").read_text() == "mine"
    assert alray("init", "other.yaml", "--from", "quickstart", "--json").json == {
        "file": "other.yaml",
        "schema": "alray.schema.json",
    }


def test_init_copies_any_committed_spec(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("init", "--from", "al/vgg_cifar10")
    assert said.out.startswith("vgg_cifar10.yaml: ") and "`alray run vgg_cifar10.yaml`" in said.out
    assert alray("validate", "vgg_cifar10.yaml").code == 0
    said = alray("init", "--from", "studies/laptop/methods")
    assert said.out.startswith("methods.yaml: ") and "`alray study methods.yaml`" in said.out
    assert said.err.startswith("methods_base.yaml: ")
    Path("methods.yaml").unlink()
    again = alray("init", "--from", "studies/laptop/methods")
    assert (again.code, again.errors.split(":")[0], Path("methods.yaml").exists()) == (
        2,
        "methods_base.yaml",
        False,
    )


def test_init_writes_the_schema_that_the_spec_names(alray: Callable[..., Any], spec: Path) -> None:
    Path("a b").mkdir()
    assert alray("init", "a b/mine.yaml").code == 0
    first, second, *_ = Path("a b/mine.yaml").read_text().split("\n")
    assert first.endswith("      alray run 'a b/mine.yaml'")
    assert second == "# yaml-language-server: $schema=alray.schema.json"
    assert Path("a b/alray.schema.json").read_text() == schema_text()
    Path("a b/alray.schema.json").write_text("mine")
    said = alray("init", "a b/other.yaml")
    assert (said.code, said.err) == (0, "")
    assert Path("a b/alray.schema.json").read_text() == "mine"


def test_init_refuses_what_it_cannot_do(alray: Callable[..., Any], spec: Path) -> None:
    assert "`nothing`" in alray("init", "--from", "nothing").err
    refused = alray("init", "nowhere/x.yaml", "--json")
    assert (refused.code, refused.json["errors"][0]["file"]) == (2, "nowhere/x.yaml")


def test_validate_knows_studies(alray: Callable[..., Any], spec: Path) -> None:
    Path("study.yaml").write_text("study: a\nbase: x.yaml\naxes: {pipeline.stages: [1, 2, 3]}\nrepeats: 2\n")
    assert alray("validate", "study.yaml") == (0, "study.yaml: ok (a study of 3 points and 6 trials)\n", "")
    said = alray("validate", "study.yaml", spec, "--json").json
    assert said["specs"][0] == {"file": "study.yaml", "study": "a", "points": 3, "trials": 6}
    Path("study.yaml").write_text("study: a\nbase: x.yaml\naxes: {pipeline.stages: [1, 4]}\n")
    assert alray("validate", "study.yaml").errors.startswith("study.yaml:3: axes.pipeline.stages[1]: 4 stages, but ")


def test_validate_shows_a_spec_on_top_of_its_base(alray: Callable[..., Any], spec: Path) -> None:
    Path("above.yaml").write_text("base: x.yaml\noptimizer: {lr: 0.25}\n", encoding="utf-8")
    said = alray("validate", "above.yaml", "--show", "run.steps=7")
    assert said.code == 0 and said.err.startswith("run.epochs ") and said.err.count("\n") == 1
    assert said.out.startswith("# above.yaml, on top of x.yaml\nversion: 1\nname: tiny\n")
    Path("shown.yaml").write_text(said.out, encoding="utf-8")
    assert load_spec("shown.yaml").spec == load_spec("above.yaml", ["run.steps=7"]).spec
    shown = alray("validate", "above.yaml", "x.yaml", "--show", "--json", "seed=3").json["specs"]
    assert [read_yaml(each["text"], "")[0]["optimizer"]["lr"] for each in shown] == [0.25, 0.001]
    assert all("\nseed: 3\n" in each["text"] for each in shown)
    assert alray("validate", "above.yaml", "optimizer.lrr=1").errors.startswith("command line: optimizer.lrr: ")
    assert alray("validate", "seed=3").code == 2


def test_a_problem_found_later_is_placed_in_the_base(alray: Callable[..., Any], spec: Path) -> None:
    Path("above.yaml").write_text("base: x.yaml\nresources: {memory_bytes: 1}\n", encoding="utf-8")
    line = next(number for number, text in enumerate(spec.open(), start=1) if text.startswith("pipeline"))
    said = alray("plan", "above.yaml")
    assert said.code == 2
    assert f"{spec.resolve()}:{line}: pipeline.partition: no cut" in said.errors
