"""A spec on top of another one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from alray.config.loading.load import dump_spec, load_spec
from alray.config.sections.spec import Spec
from alray.core.errors import SpecError
from alray.parts.optimizers.sgd import Sgd

BELOW = """\
name: below
data: {source: image_folder, train: pictures/train, image_size: 8, batch_size: 16}
model:
  components: [{block: mlp, widths: [8]}, {block: mlp, widths: [8]}]
method: {kind: associated_learning, label_dim: 4}
optimizer: {kind: sgd, lr: 0.1, momentum: 0.9}
pipeline: {stages: 2}
run: {epochs: 3}
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """`write("above.yaml", "base: ...")`; the base is `shared/below.yaml`."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "below.yaml").write_text(BELOW, encoding="utf-8")

    def made(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return made


def test_sections_are_merged_key_by_key(write: Any, tmp_path: Path) -> None:
    loaded = load_spec(write("above.yaml", "base: shared/below.yaml\nname: above\noptimizer: {lr: 0.5}\nseed: 7\n"))
    spec = loaded.spec
    assert (spec.name, spec.seed, spec.pipeline.stages, spec.run.epochs) == ("above", 7, 2, 3)
    assert isinstance(spec.optimizer, Sgd)
    assert (spec.optimizer.lr, spec.optimizer.momentum) == (0.5, 0.9)
    assert spec.data.train == tmp_path / "shared/pictures/train"  # as in the folder of the base
    assert loaded.base == tmp_path / "shared/below.yaml"
    assert "base" not in dump_spec(spec)


def test_lists_and_sections_of_another_kind_are_replaced(write: Any) -> None:
    model = "model: {components: [{block: linear, width: 3}]}\npipeline: {stages: 1}\n"
    spec = load_spec(write("above.yaml", f"base: shared/below.yaml\noptimizer: adam\n{model}")).spec
    assert (spec.optimizer.kind, spec.optimizer.lr) == ("adam", 1e-3)
    assert [entry.block for entry in spec.model.components] == ["linear"]


def test_overrides_come_on_top(write: Any, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    above = "base: ../shared/below.yaml\nseed: 2\ndata: {test: mine/test}\n"
    loaded = load_spec(write("inner/above.yaml", above), ["optimizer.lr=0.7"])
    assert (loaded.spec.seed, loaded.spec.optimizer.lr, loaded.spec.name) == (2, 0.7, "below")
    assert loaded.spec.data.train.resolve() == tmp_path / "shared/pictures/train"
    assert loaded.spec.data.test.resolve() == tmp_path / "inner/mine/test"
    as_dict = load_spec({"base": str(tmp_path / "shared/below.yaml"), "seed": 2}, ["optimizer.lr=0.7"])
    assert as_dict.spec.optimizer == loaded.spec.optimizer


@pytest.mark.parametrize(
    ("weights", "expected"),
    [("DEFAULT", "DEFAULT"), ("ResNet18_Weights.DEFAULT", "DEFAULT"), ("mine.pt", "{folder}/shared/mine.pt")],
)
def test_a_base_names_weights_or_their_file(write: Any, tmp_path: Path, weights: str, expected: str) -> None:
    spec = above(write, f"{{from: 'torchvision:resnet18', weights: {weights}}}")
    assert spec.model.weights == expected.format(folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("./vit", "{folder}/shared/vit"), ("../vit", "{folder}/vit"), ("/vit", "/vit"), ("google/vit", "google/vit")],
)
def test_a_base_names_a_model_or_its_folder(write: Any, tmp_path: Path, name: str, expected: str) -> None:
    kind, _, found = above(write, f"{{from: 'transformers:{name}'}}").model.source.partition(":")
    assert (kind, os.path.normpath(found)) == ("transformers", expected.format(folder=tmp_path))


def above(write: Any, model: str) -> Spec:
    """A spec on top of one in another folder that has this model."""
    pictures = "{source: synthetic, shape: [3, 32, 32], classes: 4, samples: 20, batch_size: 4}"
    rest = "method: backpropagation\nrun: {epochs: 1}\n"
    write("shared/imported.yaml", f"name: a\ndata: {pictures}\nmodel: {model}\n{rest}")
    return load_spec(write("above.yaml", "base: shared/imported.yaml\nseed: 2\n")).spec


def test_what_cannot_hold_beside_the_spec_is_set_aside(write: Any) -> None:
    loaded = load_spec(write("above.yaml", "base: shared/below.yaml\nrun: {steps: 5}\nmethod: backpropagation\n"))
    assert (loaded.spec.run.steps, loaded.spec.run.epochs, loaded.spec.pipeline.stages) == (5, None, 1)
    assert [note.split()[:4] for note in loaded.notes] == [
        ["run.epochs", "of", "the", "base"],
        ["pipeline.stages", "of", "the", "base"],
    ]
    with pytest.raises(SpecError, match="run"):  # contradictions within it are errors
        load_spec(write("above.yaml", "base: shared/below.yaml\nrun: {steps: 5, epochs: 2}\n"))


def test_a_validation_set_sets_the_fraction_of_the_base_aside(write: Any) -> None:
    write("shared/below.yaml", BELOW.replace("batch_size: 16", "batch_size: 16, validation_fraction: 0.2"))
    loaded = load_spec(write("above.yaml", "base: shared/below.yaml\ndata: {validation: b}\n"))
    assert loaded.spec.data.own_validation and loaded.spec.data.validation_fraction == 0
    assert [note.split()[:4] for note in loaded.notes] == [["data.validation_fraction", "of", "the", "base"]]


def test_a_problem_is_in_the_file_that_has_it(write: Any, tmp_path: Path) -> None:
    write("shared/below.yaml", BELOW.replace("stages: 2", "stages: 2, in_flite: 3"))
    with pytest.raises(SpecError) as caught:
        load_spec(write("above.yaml", "base: shared/below.yaml\n\noptimizer: {lr: x}\n"))
    places = {problem.key: (Path(str(problem.file)).name, problem.line) for problem in caught.value.problems}
    assert places == {"optimizer.lr": ("above.yaml", 3), "pipeline.in_flite": ("below.yaml", 7)}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("base: nowhere.yaml", ("above.yaml", 1, "base")),
        ("base: [a, b]", ("above.yaml", 1, "base")),
        ("seed: 1\nbase: above.yaml", ("above.yaml", 2, "base")),
        ("base: middle.yaml", ("above.yaml", 1, "base")),
        ("base: study.yaml", ("study.yaml", 1, "study")),
    ],
)
def test_a_base_that_is_none(write: Any, text: str, place: tuple[str, int, str]) -> None:
    write("study.yaml", "study: s\nbase: shared/below.yaml\n")
    write("middle.yaml", "base: shared/below.yaml\n")
    with pytest.raises(SpecError) as caught:
        load_spec(write("above.yaml", text))
    (problem,) = caught.value.problems
    assert (Path(str(problem.file)).name, problem.line, problem.key) == place and problem.hint
