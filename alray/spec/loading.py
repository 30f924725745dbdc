"""From a spec file and overrides to a checked `Spec`, and back to text."""

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
    """A spec, where it was read, and what the reader should be told about the overrides."""

    spec: Spec
    file: Path
    notes: list[str] = field(default_factory=list)


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> LoadedSpec:
    """Read the spec at `path`, apply `key.sub=value` overrides, check everything.

    Relative paths in it, overrides included, are taken from the folder of the file, and come out absolute.
    Raises SpecError with all problems that can be told at once, each with file, line, key and mend.
    """
    file = Path(path)
    document, places = read_yaml(_text(file), str(path))
    document = _run_spec(document, places)
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
    """The spec as YAML text, every key written out; `load_spec` reads an equal spec from it."""
    return write_yaml(spec.model_dump(mode="json"))


def _error(problems: list[Problem]) -> SpecError:
    error = SpecError.of(tuple(problems))
    assert isinstance(error, SpecError)
    return error


def _text(file: Path) -> str:
    if file.is_dir():
        raise SpecError("this is a folder", mend="name a spec file in it", file=str(file))
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise SpecError(
            "there is no such file", mend="`alray init` writes a spec to begin with", file=str(file)
        ) from error
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", mend="name a readable file", file=str(file)) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError("not text in UTF-8", mend="name a spec file", file=str(file), line=line) from error


def _run_spec(document: Any, places: Places) -> dict[str, Any]:
    file = places.file
    mend = "`alray init` writes a spec to begin with"
    if document is None:
        raise SpecError("the file says nothing", mend=mend, file=file)
    if not isinstance(document, dict):
        raise SpecError(
            f"expected keys such as `name:` and `data:`, got {describe(document)}",
            mend=mend,
            file=file,
            line=1,
        )
    if "study" in document:
        raise SpecError(
            "this is a study, not a spec of one run",
            mend="studies belong to `alray study`, which is not part of this version",
            file=file,
            line=places.of(("study",)).line,
            key="study",
        )
    return document
