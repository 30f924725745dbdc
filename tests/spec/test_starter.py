"""The starter specs."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.errors import SpecError
from alray.spec.loading import load_spec
from alray.spec.starter import starter, starter_names

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.parametrize("name", starter_names())
def test_a_starter_loads(name: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(starter(name), encoding="utf-8")
    assert load_spec(file).spec.name == name


@pytest.mark.parametrize("name", starter_names())
def test_a_starter_begins_with_what_it_shows_its_command_and_the_schema(name: str) -> None:
    first, second, *_ = starter(name).split("\n")
    assert first.startswith("# ") and first.endswith(f"alray run specs/{name}.yaml")
    assert second == "# yaml-language-server: $schema=alray.schema.json"


def test_quickstart_is_the_spec_that_is_committed() -> None:
    assert starter() == (SPECS / "quickstart.yaml").read_text(encoding="utf-8")


def test_an_unknown_starter() -> None:
    with pytest.raises(SpecError) as caught:
        starter("nothing")
    assert str(caught.value) == "there is no starter spec `nothing`; known: quickstart"
