"""The location of a key, for problems that are found after the spec was read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alray.config.loading.load import load_spec
from alray.config.loading.source_locations import SourceLocations
from alray.core.errors import PlanError


def located(locations: SourceLocations, key: str | None, file: str | None = None) -> tuple[str | None, int | None]:
    with pytest.raises(PlanError) as caught, locations.locating():
        raise PlanError("it does not fit", key=key, file=file)
    (problem,) = caught.value.problems
    assert (problem.message, problem.key) == ("it does not fit", key)
    return problem.file, problem.line


@pytest.mark.parametrize(
    ("key", "location"),
    [
        ("pipeline.stages", ("x.yaml", 9)),
        ("model.components[1].channels", ("x.yaml", 6)),
        ("pipeline.in_flight", ("x.yaml", 9)),  # a default: the section it belongs to
        ("resources.per_stage", ("x.yaml", None)),  # a section that the file leaves out
        ("run.epochs", ("command line", None)),
        ("--devices", (None, None)),
        (None, (None, None)),
    ],
)
def test_a_problem_gets_the_location_of_its_key(
    small: str, write: Callable[[str], Path], key: str | None, location: tuple[str, int | None]
) -> None:
    file = write(small)
    locations = load_spec(file, ["run.epochs=4"]).locations
    file.unlink()  # it is not read again
    assert located(locations, key) == location


def test_a_location_that_is_known_stays(small: str, write: Callable[[str], Path]) -> None:
    assert located(load_spec(write(small)).locations, "pipeline.stages", "plan.json") == ("plan.json", None)


def test_a_spec_without_a_file_has_none() -> None:
    document = {"name": "a", "data": "digits", "model": {"components": [{"block": "linear", "width": 2}]}}
    locations = load_spec({**document, "run": {"epochs": 1}}).locations
    assert located(locations, "pipeline.stages") == (None, None)
