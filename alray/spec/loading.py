"""Loads a spec file with overrides as a checked `Spec`, and writes a spec back as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from alray.errors import Problem, SpecError
from alray.spec.checks import check_spec
from alray.spec.messages import problems_of
from alray.spec.models import Spec
from alray.spec.overrides import apply_overrides
from alray.spec.places import Places
from alray.spec.section import describe
from alray.spec.yaml_text import read_yaml, write_yaml


@dataclass(frozen=True)
class LoadedSpec:
    """A spec, its file, and notes for the user about what the overrides removed."""

    spec: Spec
    file: Path
    notes: list[str] = field(default_factory=list)


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """Read the spec at `path`, apply `key.sub=value` overrides and check everything.

    Relative paths in the spec and in overrides are taken from the folder of the file and become absolute. Raises
    SpecError with as many problems as can be found at once, each with file, line, key and mend.
    """
    file = Path(path)
    document, places = read_document(path)
    if "study" in document:
        raise SpecError(
            "this is a study, not the spec of one run",
            mend="run it with `alray study`",
            file=str(path),
            line=places.of(("study",)).line,
            key="study",
        )
    applied = apply_overrides(document, overrides, places)
    problems = applied.problems
    try:
        spec = Spec.model_validate(document, context={"directory": file.resolve().parent})
    except ValidationError as error:
        raise _error([*problems_of(error.errors(include_url=False), places), *problems]) from error
    problems = [*check_spec(spec, places), *problems]
    if problems:
        raise _error(problems)
    return LoadedSpec(spec, file, applied.notes)


def dump_spec(spec: Spec) -> str:
    """Return the spec as YAML text with all keys. `load_spec` reads an equal spec from it."""
    return write_yaml(spec.model_dump(mode="json"))


def _error(problems: list[Problem]) -> SpecError:
    error = SpecError.of(tuple(problems))
    assert isinstance(error, SpecError)
    return error


def _text(file: Path) -> str:
    if file.is_dir():
        raise SpecError("this is a folder", mend="give a spec file", file=str(file))
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise SpecError(
            "the file does not exist", mend="write an example spec with `alray init`", file=str(file)
        ) from error
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", mend="give a readable file", file=str(file)) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError("this is not UTF-8 text", mend="give a spec file", file=str(file), line=line) from error


def read_document(path: str | Path) -> tuple[dict[str, Any], Places]:
    """The keys of a spec file as they are written, and their places. Raises SpecError if the file has none."""
    document, places = read_yaml(_text(Path(path)), str(path))
    file = places.file
    mend = "write an example spec with `alray init`"
    if document is None:
        raise SpecError("the file is empty", mend=mend, file=file)
    if not isinstance(document, dict):
        raise SpecError(
            f"expected keys such as `name:` and `data:`, got {describe(document)}",
            mend=mend,
            file=file,
            line=1,
        )
    return document, places
