"""Messages that once led astray, each of a kind that a user met: where the fault is, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from alray.config.loading.inputs import load_with_inputs
from alray.config.loading.load import LoadedSpec, load_spec
from alray.config.loading.source_locations import COMMAND_LINE
from alray.core.errors import AlrayError, Problem, SpecError

SPEC = """
name: astray
data: {source: table, train: train.csv, batch_size: 20}
model:
  from: torchvision:resnet18
  with: {num_classes: 10}
  components: 3
method: decoupled_greedy
run: {steps: 2}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def refused(load: Callable[[], LoadedSpec]) -> Problem:
    with pytest.raises(SpecError) as caught:
        load()
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("overrides", "key", "message", "shown"),
    [
        (["model.with.width=3"], "model.with", "unexpected keyword argument 'width'", "model.with.width=3"),
        (
            ["model.with.width=3", "model.with.num_classes=4"],
            "model.with",
            "unexpected keyword argument 'width'",
            "model.with.width=3",
        ),
        (["data.columns=4"], "data.source", "does not take these fields: 'columns'", "data.columns=4"),
        (["method.pool=4"], "method", "unexpected keyword argument 'pool'", "method.pool=4"),
        (["data.batch_size=10"], "data", "there is no test split", None),
        (["data.batch_size=10"], "data.source", "needs `classes`", None),
    ],
)
def test_an_override_that_is_refused_is_shown(
    folder: Path, overrides: Sequence[str], key: str, message: str, shown: str | None
) -> None:
    """A later error knows a key around the override; the file's line of that key is right."""
    locations = load_spec(folder / "spec.yaml").locations
    for override in overrides:
        locations.override(tuple(override.partition("=")[0].split(".")), override)
    with pytest.raises(AlrayError) as caught, locations.locating():
        raise AlrayError(message, key=key)
    problem = caught.value.problems[0]
    if shown is None:
        assert problem.file != COMMAND_LINE
    else:
        assert (problem.file, problem.text) == (COMMAND_LINE, shown)


@pytest.mark.parametrize(
    ("text", "overrides", "aside"),
    [
        (SPEC, ["model.cut=[layer1, layer2]"], "model.components"),
        (SPEC.replace("components: 3", "cut: [layer1]"), ["model.components=2"], "model.cut"),
        (SPEC.replace("components: 3", "components: auto"), ["model.cut=[layer1]"], None),
    ],
)
def test_what_is_cut_anew_sets_the_other_way_aside(
    folder: Path, text: str, overrides: Sequence[str], aside: str | None
) -> None:
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    notes = load_spec(folder / "spec.yaml", overrides).notes
    assert [note.partition(" of the file")[0] for note in notes] == ([] if aside is None else [aside])


def test_both_ways_to_cut_on_the_command_line_are_refused(folder: Path) -> None:
    problem = refused(lambda: load_spec(folder / "spec.yaml", ["model.cut=[layer1]", "model.components=2"]))
    assert problem.file == COMMAND_LINE
    assert "auto" in str(problem.hint)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("train.csv", "${DATA_DIR}/train.csv"),
        ("train.csv", '"${DATA_DIR}/train.csv"'),
        ("train.csv", "$HOME/train.csv"),
        ("batch_size: 20", 'batch_size: "${BATCH}"'),
        ("name: astray", "name: $USER"),
    ],
)
def test_a_variable_is_not_filled_in(folder: Path, before: str, after: str) -> None:
    (folder / "train.csv").write_text("a,label\n0,0\n", encoding="utf-8")
    (folder / "spec.yaml").write_text(SPEC.replace(before, after), encoding="utf-8")
    problem = refused(lambda: load_with_inputs(folder / "spec.yaml", [], allow_elsewhere=False))
    assert "environment variables are not filled in" in str(problem.hint)
    assert problem.line is not None


def test_a_key_that_only_holds_an_anchor(folder: Path) -> None:
    (folder / "spec.yaml").write_text(
        "name: x\nx-common:\n- &mlp {block: mlp, widths: [16]}\n"
        "data: {source: digits}\nmodel: {components: [*mlp, *mlp]}\nrun: {steps: 1}\n",
        encoding="utf-8",
    )
    assert [block.widths for block in load_spec(folder / "spec.yaml").spec.model.blocks] == [(16,), (16,)]
