"""The JSON Schema, and the file of it that editors read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from alray.config.loading.load import dump_spec, load_spec
from alray.config.loading.yaml_text import read_yaml
from alray.config.schema import json_schema, schema_text
from alray.config.study.load import is_study, load_study

SPECS = Path(__file__).parents[2] / "specs"
FILES = sorted(SPECS.rglob("*.yaml"))
DUMPED = {
    *("quickstart", "resnet_cifar100", "lstm_agnews", "transformer_agnews", "sync_sgd_dogs_vs_cats"),
    *("strong_scaling", "ablation_bridge"),
}
"""One of each family, of replicas and of studies: a dump has all keys, so one is much like another."""


def test_the_committed_schema_is_in_step() -> None:
    assert (SPECS / "alray.schema.json").read_text(encoding="utf-8") == schema_text()


def test_only_the_default_kind_may_be_left_out() -> None:
    definitions = json_schema()["$defs"]
    assert "kind" not in definitions["Adam"].get("required", [])
    for name in ("Sgd", "AdamW", "Backpropagation", "Cosine", "Linear"):
        assert "kind" in definitions[name]["required"]


def test_a_duration_is_text() -> None:
    assert json_schema()["$defs"]["Checkpoint"]["properties"]["every"]["type"] == "string"
    assert json_schema()["$defs"]["Checkpoint"]["properties"]["every"]["default"] == "1 epoch"


@pytest.fixture(scope="module")
def check() -> Callable[[str], None]:
    """Raises ValidationError where an editor would mark something."""
    validator = jsonschema.Draft202012Validator(json_schema())
    return lambda text: validator.validate(read_yaml(text, "x.yaml")[0])


@pytest.mark.few
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_editor_takes_the_committed_specs(check: Callable[[str], None], file: Path) -> None:
    check(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, id=file.stem, marks=[] if file.stem in DUMPED else pytest.mark.full) for file in FILES],
)
def test_an_editor_takes_what_is_dumped(check: Callable[[str], None], file: Path) -> None:
    check(dump_spec(load_study(file).study if is_study(file) else load_spec(file).spec))


def test_an_editor_marks_a_misspelt_key() -> None:
    document, _ = read_yaml((SPECS / "quickstart.yaml").read_text(encoding="utf-8"), "x.yaml")
    document["model"]["components"][0]["chanels"] = [3]
    validator = jsonschema.Draft202012Validator(json_schema())
    assert not validator.is_valid(document)
    study = {"study": "a", "base": "x.yaml", "axes": {"pipeline.stages": [1, 2]}}
    assert validator.is_valid(study)
    assert not validator.is_valid({**study, "repeat": 3})
    assert not validator.is_valid({**study, "axes": {"pipeline.stages": []}})


@pytest.mark.full
def test_of_a_spec_on_top_of_a_base_only_the_sections_are_checked() -> None:
    jsonschema.validate({"base": "other.yaml", "optimizer": {"lr": 1.0}}, json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"base": "other.yaml", "optimiser": {"lr": 1.0}}, json_schema())
