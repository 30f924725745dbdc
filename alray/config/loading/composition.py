"""A spec on top of another one: `base: other.yaml`, and below it only what differs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from alray.config.loading.messages import problem
from alray.config.loading.precedence import set_aside
from alray.config.loading.source_locations import SourceLocations
from alray.config.loading.yaml_text import Parsed
from alray.config.sections.choice import Choice
from alray.config.sections.grammar import bare, choice_of, inside, key_types, section_of, selected, spelled_out
from alray.config.sections.model import TRANSFORMERS, OfTransformers
from alray.config.sections.paths import Path
from alray.config.sections.section import Input, describe, located, path_from
from alray.config.sections.spec import Spec
from alray.core.errors import SpecError

BASE = "base"
"""The key of the spec below. It is not a key of `Spec`: a run folder keeps the whole spec, without it."""


@dataclass(frozen=True)
class Composed(Parsed):
    """The keys of a spec and of its base together.

    Attributes:
        base: the file below.
        notes: what of it was set aside.
    """

    notes: tuple[str, ...] = ()
    base: FilePath | None = None

    def copy(self) -> Composed:
        """The same, to be changed by overrides."""
        return replace(self, value=deepcopy(self.value), locations=self.locations.over({}))


def compose(parsed: Parsed, folder: FilePath | None, read: Callable[[FilePath], Parsed]) -> Composed:
    """Put a spec on top of its base. Sections are merged key by key, and lists are replaced.

    A section of another kind (`method`, `data`, `optimizer`, ...) replaces that of the base. What of the base cannot
    hold together with the spec is set aside, as for overrides. Relative paths of the base begin in its folder.

    Args:
        folder: of the spec.
        read: reads a file.

    Raises:
        SpecError: if there is no such file, or if it is a study or has a base itself.
    """
    own = spelled_out(parsed.value)
    if BASE not in own:
        return Composed(own, parsed.locations, parsed.problems)
    file = _file_of(own.pop(BASE), folder, parsed.locations)
    below = read(file)
    common = spelled_out(below.value)
    if BASE in common:
        hint = "name that one, and write here what differs from it"
        raise _refused(parsed.locations, f"{file.name} has a base itself", hint)
    if folder is not None:
        _relocate(common, Spec, file.parent, folder)
    value = _merged(common, own, Spec)
    inherited = {path: location for path, location in below.locations if _is_in(value, path)}
    locations = parsed.locations.over(inherited)
    notes = set_aside(value, frozenset(_paths(own)), locations, of="the base")
    problems = {**{path: found for path, found in below.problems.items() if _is_in(value, path)}, **parsed.problems}
    return Composed(value, locations, problems, tuple(notes), file)


def _file_of(given: Any, folder: FilePath | None, locations: SourceLocations) -> FilePath:
    if not isinstance(given, str):
        raise _refused(
            locations, f"expected the path of a spec, got {describe(given)}", "write, for example, base: other.yaml"
        )
    try:
        file = path_from(given, folder).resolve()
    except PydanticCustomError as error:
        why = error.context or {}
        raise _refused(locations, why["message"], why["hint"]) from error
    if not file.is_file():
        raise _refused(
            locations, f"there is no file {file}", "correct the path, which begins in the folder of this spec"
        )
    return file


def _refused(locations: SourceLocations, message: str, hint: str) -> SpecError:
    return SpecError.of((problem(locations, (BASE,), message, hint),))


def _merged(below: Any, above: Any, annotation: Any) -> Any:
    """A value of the base with a value of the spec on top of it."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    choice = choice_of(annotation)
    if isinstance(choice, Choice):
        kind = below.get(choice.key, choice.default)
        if above.get(choice.key, kind) != kind:
            return above
    section = section_of(selected(annotation, below))
    known = key_types(section) if section is not None else {}
    return {
        **below,
        **{key: _merged(below[key], value, known.get(key)) if key in below else value for key, value in above.items()},
    }


def _relocate(value: Any, annotation: Any, there: FilePath, here: FilePath) -> None:
    """Write the relative paths of a base, which begin in the folder `there`, as they begin in the folder `here`."""
    for part, inner in inside(annotation, value):
        given = value[part]
        if not isinstance(given, str):
            _relocate(given, inner, there, here)
        elif given and not given.startswith(("/", "~")) and is_path(given, inner):
            value[part] = os.path.relpath(there / given, here)
        elif any(isinstance(mark, OfTransformers) and mark.marks(given) for mark in bare(inner)[1]):
            path = os.path.relpath(there / given.removeprefix(TRANSFORMERS), here)
            value[part] = f"{TRANSFORMERS}./{path}"  # without ./ it is a name on the hub


def is_path(given: str, annotation: Any) -> bool:
    """Whether a text is the path of a file or a folder: some fields take a name too."""
    marks = bare(annotation)[1]
    inputs = [mark for mark in marks if isinstance(mark, Input)]
    if inputs:
        return inputs[0].marks(given)
    return any(isinstance(mark, BeforeValidator) and mark.func is located for mark in marks)


def _paths(value: Any, around: Path = ()) -> Iterator[Path]:
    """The paths of all keys in sections within sections."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield (*around, key)
        yield from _paths(inner, (*around, key))


def _is_in(value: Any, path: Path) -> bool:
    """Whether there is a value at this path."""
    for part in path:
        held = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
        if part not in held:
            return False
        value = held[part]
    return True
