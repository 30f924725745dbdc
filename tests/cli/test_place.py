"""The place of a key, for problems that come up after the spec was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from alray.spec.placed_errors import source_location_of


def told(key: str, spec: Path) -> tuple[str | None, int | None]:
    place = source_location_of(key, spec, ["run.epochs=4"])
    return place.file, place.line


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("pipeline.stages", ("x.yaml", 9)),
        ("model.components[1].channels", ("x.yaml", 6)),
        ("pipeline.in_flight", ("x.yaml", 9)),  # a default: the section it belongs to
        ("resources.per_stage", ("x.yaml", None)),  # a section that the file leaves out
        ("run.epochs", ("command line", None)),
    ],
)
def test_the_place_of_a_key(spec: Path, key: str, place: tuple[str, int | None]) -> None:
    assert told(key, spec) == place


def test_a_file_that_is_gone_by_now(spec: Path) -> None:
    spec.unlink()
    assert told("run.epochs", spec) == ("x.yaml", None)
