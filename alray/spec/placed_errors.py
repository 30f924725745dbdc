"""Errors as commands and the Python interface show them: faults of the system, and keys with their line in the spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from alray.errors import AlrayError, Problem, SpecError
from alray.system_errors import system_faults

if TYPE_CHECKING:
    from alray.spec.loading import Source
    from alray.spec.source_locations import SourceLocation


@contextmanager
def completed(spec: Source | None = None, overrides: Sequence[str] = ()) -> Iterator[None]:
    """Inside, a fault of the system becomes an error of alray. A problem that names a key of the spec, but was found
    after the spec had been read, gets the location where the key was written.

    spec, overrides: the source of the request.
    """
    try:
        with system_faults():
            yield
    except AlrayError as error:
        error.restate([placed(problem, spec, overrides) for problem in error.problems])
        raise


def placed(problem: Problem, spec: Source | None, overrides: Sequence[str] = ()) -> Problem:
    """Return the problem with the location of its key in the spec, if it names a key but no location."""
    if spec is None or problem.file is not None or problem.key is None or problem.key.startswith("-"):
        return problem
    location = source_location_of(problem.key, spec, overrides)
    return replace(location.problem(problem.message, problem.hint, problem.key), traceback=problem.traceback)


def source_location_of(key: str, spec: Source, overrides: Sequence[str]) -> SourceLocation:
    """The location of a key in the file or on the command line, or of the nearest section around it.

    key: as messages print it, such as `model.components[2].channels`. The line is None if it is not known.
    """
    from alray.spec.loading import read_spec
    from alray.spec.overrides import apply_overrides
    from alray.spec.source_locations import SourceLocation

    try:
        parsed = read_spec(spec)
    except SpecError:
        return SourceLocation(
            str(spec), None
        )  # the file was readable when the command began; the original problem matters more
    apply_overrides(parsed.value, overrides, parsed.locations)
    return parsed.locations.of_entry(
        tuple(int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", key))
    )
