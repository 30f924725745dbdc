"""Loads a spec file with overrides as a checked `Spec`, and writes a spec back as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from alray.config.loading.composition import Composed, compose
from alray.config.loading.messages import in_order, problem
from alray.config.loading.overrides import apply_overrides
from alray.config.loading.source_locations import SourceLocations
from alray.config.loading.values import read_values
from alray.config.loading.yaml_text import Parsed, parse_yaml, plain, write_yaml
from alray.config.sections.checks import CHECKS, Check
from alray.config.sections.replica_checks import REPLICA_CHECKS
from alray.config.sections.section import ANCHORS, Section, describe, did_you_mean, nearest
from alray.config.sections.spec import Spec
from alray.core.errors import SpecError
from alray.core.storage.location import Location, location_of, names_a_scheme

SpecSource: TypeAlias = str | Location | Mapping[str, Any] | Section
"""A spec or a study: its file, its keys and values, or its model."""


LARGEST_BYTES = 1_000_000
"""Size of the largest file that is read as a spec."""
_EXAMPLE = "write an example spec with `alray init`"


@dataclass(frozen=True)
class LoadedSpec:
    """A spec, its file, its keys as they were given and where, and notes for the user about what overrides removed."""

    spec: Spec
    file: Location | None
    """None: the spec was given as values."""
    given: dict[str, Any]
    locations: SourceLocations
    notes: list[str]
    base: Path | None = None
    """The file that it names as `base`."""

    @property
    def folder(self) -> Path:
        """The folder of the file, which is on a disk: only the spec in a run folder may be on object storage."""
        folder = directory_of(self.file)
        assert folder is not None
        return folder


def load_spec(
    source: SpecSource, overrides: Sequence[str] = (), *, also: Sequence[Check] = (), directory: Path | None = None
) -> LoadedSpec:
    """Read a spec, apply `key.sub=value` overrides and check everything.

    Relative paths in the spec and in overrides are taken from the folder of the file, or from the current folder if
    there is no file, and become absolute.

    Raises SpecError with all problems, each with file, line, key and hint. A syntax error of YAML hides others,
    and a value that is wrong by itself hides what is wrong between values.

    Args:
        also: further checks.
        directory: where relative paths begin instead: the file that a run folder keeps has none, but overrides may.
    """
    return load_composed(read_spec(source), file_of(source), overrides, also=also, directory=directory)


def load_composed(
    composed: Composed,
    file: Location | None,
    overrides: Sequence[str] = (),
    *,
    also: Sequence[Check] = (),
    directory: Path | None = None,
) -> LoadedSpec:
    """`load_spec` of a spec whose file was read before. The overrides change `composed`: it is used once."""
    document, locations = composed.value, composed.locations
    applied = apply_overrides(document, overrides, locations)
    spec, problems = read_values(Spec, composed, directory or directory_of(file))
    problems += applied.problems
    if spec is not None:
        checks = (*CHECKS, *REPLICA_CHECKS, *also)
        problems += [problem(locations, *finding) for check in checks for finding in check(spec)]
    if spec is None or problems:
        raise SpecError.of(tuple(in_order(problems)))
    return LoadedSpec(spec, file, document, locations, [*composed.notes, *applied.notes], composed.base)


def read_spec(source: SpecSource) -> Composed:
    """The keys of a spec on top of those of its base, not checked yet. Raises SpecError if it is a study."""
    return compose(_read_no_study(source), directory_of(file_of(source)), _read_no_study)


def _read_no_study(source: SpecSource) -> Parsed:
    parsed = read_document(source)
    locations = parsed.locations
    if "study" in parsed.value:
        message = "this is a study, not the spec of one run"
        raise SpecError.of((problem(locations, ("study",), message, "run it with `alray study`", at_key=True),))
    return parsed


def dump_spec(spec: Section) -> str:
    """A spec or a study as YAML text with all keys. `load_spec` or `load_study` reads an equal one from it."""
    return write_yaml(spec.model_dump(mode="json"))


def file_of(source: SpecSource) -> Location | None:
    """The file of a spec or a study; None if it was given as values."""
    return None if isinstance(source, Mapping | Section) else location_of(source)


def directory_of(file: Location | None) -> Path | None:
    """Where relative paths of a spec are taken from; None on object storage, where all paths are absolute."""
    if file is None:
        return Path.cwd()
    return file.resolve().parent if isinstance(file, Path) else None


def _text(file: Location) -> str:
    try:
        if file.is_dir():
            raise SpecError("this is a folder", hint="give a spec file", file=str(file))
        content = _content(file)
    except FileNotFoundError as error:
        message, hint = "the file does not exist", _EXAMPLE
        if isinstance(file, Path) and names_a_scheme(str(file)):
            message, hint = "a spec is a file on a disk, not a URL", "copy it to this machine"
        elif re.search("[=:]", str(file)):
            hint = "give the spec first, and then its overrides, such as optimizer.lr=3e-4"
        elif isinstance(file, Path):
            meant = nearest(file.name, (each.name for each in file.parent.glob("*.y*ml")))
            hint = did_you_mean(str(file.with_name(meant)) if meant else None, _EXAMPLE)
        raise SpecError(message, hint=hint, file=str(file)) from error
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", hint="give a readable file", file=str(file)) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecError(
            "this is not UTF-8 text", hint="save it as UTF-8, if it is a spec", file=str(file), line=line
        ) from error


def _content(file: Location) -> bytes:
    """The bytes of a spec's file. Raises SpecError for what is no file, such as a pipe, and for a file too large."""
    if not isinstance(file, Path):
        return file.read_bytes()
    if file.exists() and not file.is_file():  # it may have no end, or wait for ever
        raise SpecError("this is a device or a pipe, not a file", hint="give a spec file", file=str(file))
    with file.open("rb") as opened:
        content = opened.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        message = f"the file has more than {LARGEST_BYTES:,} bytes, which no spec needs"
        hint = "give a spec file; a component that comes again is written once, with `repeat`"
        raise SpecError(message, hint=hint, file=str(file))
    return content


def read_document(source: SpecSource) -> Parsed:
    """The keys of a spec as they are given, without those that begin with `ANCHORS`. Raises SpecError if its file has
    none."""
    if isinstance(source, Section):
        source = source.model_dump(mode="json")
    if isinstance(source, Mapping):
        return Parsed(_without_anchors(plain(source)), SourceLocations(None), {})
    parsed = parse_yaml(_text(location_of(source)), str(source))
    document, file = parsed.value, parsed.locations.file
    if document is None:
        raise SpecError("the file is empty", hint=_EXAMPLE, file=file)
    if not isinstance(document, dict):
        raise SpecError(
            f"expected keys such as `name:` and `data:`, got {describe(document)}",
            hint=_EXAMPLE,
            file=file,
            line=1,
        )
    return replace(parsed, value=_without_anchors(document))


def _without_anchors(document: dict[str, Any]) -> dict[str, Any]:
    """The keys of a document without those that only hold values for YAML's anchors: aliases have been followed."""
    return {key: value for key, value in document.items() if not key.startswith(ANCHORS)}
