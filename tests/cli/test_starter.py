"""The starter specs: every committed spec and study can be copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.cli.spec import SCHEMA_FILE, starter, starter_names
from alray.config.loading.load import load_spec
from alray.config.study.load import load_study

SPECS = Path(__file__).parents[2] / "specs"


def test_every_committed_spec_is_one() -> None:
    committed = {file.relative_to(SPECS).as_posix().removesuffix(".yaml"): file for file in SPECS.rglob("*.yaml")}
    assert set(starter_names()) == set(committed)


def test_quickstart_is_the_spec_that_is_committed() -> None:
    text = (SPECS / "quickstart.yaml").read_text(encoding="utf-8")
    assert starter("quickstart", Path("specs/quickstart.yaml")) == {Path("specs/quickstart.yaml"): text}


def test_a_starter_shows_its_command_and_the_schema() -> None:
    for name in starter_names():
        for file, text in starter(name, Path("a b/x.yaml")).items():
            first, second, *_ = text.split("\n")
            assert first.startswith("# ") and f"specs/{name}" not in first
            assert first.endswith(tuple(f"alray {command} '{file}'" for command in ("run", "study", "plan")))
            assert second == f"# yaml-language-server: $schema={SCHEMA_FILE}"


def test_a_study_comes_with_its_base(tmp_path: Path) -> None:
    texts = starter("studies/laptop/strong_scaling", tmp_path / "x.yaml")
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    study, base = texts
    assert (study.name, base.name) == ("x.yaml", "x_base.yaml")
    assert load_study(study).study.base == base and load_study(study).study.study == "x"
    assert load_spec(base).spec.name == "x_base"


@pytest.mark.parametrize("name", ["laptop/slow_link", "laptop/compressed_link", "studies/laptop/slow_links"])
def test_a_spec_comes_with_all_its_bases(name: str, tmp_path: Path) -> None:
    texts = starter(name, tmp_path / "equal_components.yaml")
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    first = next(iter(texts))
    assert load_study(first).trials if name.startswith("studies") else load_spec(first).spec.name == "equal_components"


@pytest.mark.parametrize(("file", "name"), [("mine.yaml", "mine"), ("my spec.yaml", "quickstart"), ("on.yaml", "on")])
def test_a_run_is_named_for_its_file(file: str, name: str, tmp_path: Path) -> None:
    (text,) = starter("quickstart", tmp_path / file).values()
    (tmp_path / file).write_text(text, encoding="utf-8")
    assert load_spec(tmp_path / file).spec.name == name
