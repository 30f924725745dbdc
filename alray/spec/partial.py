"""Reads a document as a `Spec`. If values are wrong, all of them are found, and the rest is a spec that can be checked.

pydantic stops at a `kind`, `source` or `block` that does not exist, and gives no model if anything is wrong. Here the
other keys of such a section are checked too, and checks across keys can read the values that are right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from alray.spec.grammar import Spot, has_any_length, item_of, key_types, section_of, selected, spot
from alray.spec.messages import WRONG_KIND, meant_kind
from alray.spec.models import Spec
from alray.spec.section import Section, Unknown, nearest
from alray.spec.source_locations import Path

Root = TypeVar("Root", bound=Section)

MOST_ERRORS = 100
"""No more errors of one document are told."""

Context = dict[str, Any]
"""The context that validators get: the folder of the spec."""


def parse_spec(
    document: Any, directory: FilePath | None, refused: Collection[Path] = ()
) -> tuple[Spec, list[ErrorDetails]]:
    """Return the spec in a document, and all errors of its values; see `parse_document`."""
    return parse_document(Spec, document, directory, refused)


def parse_document(
    root: type[Root], document: Any, directory: FilePath | None, refused: Collection[Path] = ()
) -> tuple[Root, list[ErrorDetails]]:
    """Return a document as its model `root`, and all errors of its values.

    If there are errors, the model lacks the wrong values: asking for one raises `Unknown`. Of more than MOST_ERRORS the
    first ones are returned, and the model lacks all values. directory: where relative
    paths begin. refused: paths of values that are already known to be wrong; no error is returned for them.
    """
    context = {"directory": directory}
    spec: Root | None
    found: list[ErrorDetails]
    try:
        spec, found = root.model_validate(document, context=context), []
    except ValidationError as error:
        spec, found = None, error.errors(include_url=False)
    if len(found) > MOST_ERRORS:  # to compare thousands with each other takes minutes
        nothing = _Rest(frozenset((key,) for key in key_types(root)), {}, context).section(root, {}, ())
        assert isinstance(nothing, root)
        return nothing, found[:MOST_ERRORS]
    meant: dict[Path, dict[str, str]] = {}
    for wrong_kind in [each for each in found if each["type"] in WRONG_KIND]:
        here = spot(wrong_kind["loc"], root)
        kind, more = _whichever_kind(wrong_kind, here, context)
        meant |= {here.path: kind} if kind else {}
        found += more
    found = [each for each in found if not _is_echo(each, found, root) and not _is_within(each, refused, root)]
    if spec is not None and not refused:
        return spec, found
    wrong = frozenset([*refused, *(_unknown_path(each, meant, root) for each in found)])
    rest = _Rest(wrong, meant, context).section(root, document, ())
    assert isinstance(rest, root)
    return rest, found


def _whichever_kind(error: ErrorDetails, here: Spot, context: Context) -> tuple[dict[str, str], list[ErrorDetails]]:
    """Return the kind that was probably meant, if any, for a section whose kind does not exist, and its other errors.

    If it is not clear which kind was meant, these are the errors that the section would have with any kind.
    """
    value = error["input"]
    if here.choice is None or not isinstance(value, dict):
        return {}, []
    key = here.choice.key
    meant = meant_kind(value.get(key), here)
    kinds = here.known if meant is None else [meant]
    found = [_errors(here.members[kind], {**value, key: kind}, context) for kind in kinds]
    shared = set.intersection(*({(each["loc"], each["type"]) for each in errors} for errors in found))
    more = [each for each in found[0] if (each["loc"], each["type"]) in shared]
    for each in more:
        each["loc"] = (*error["loc"], kinds[0], *each["loc"])
    return ({} if meant is None else {key: meant}), more


def _errors(section: type[Section], value: Any, context: Context) -> list[ErrorDetails]:
    try:
        section.model_validate(value, context=context)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def _is_echo(error: ErrorDetails, found: list[ErrorDetails], root: type[Section]) -> bool:
    """Whether an error only follows from another one.

    pydantic also reports a list with wrong entries as too short, a misspelt key as missing, and a default that depends
    on a wrong value.
    """
    if error["type"] == "too_short":
        return len(error["input"]) >= int(error["ctx"]["min_length"])
    if error["type"] == "missing":
        return any(each["type"] == "extra_forbidden" and _meant_key(each, root) == error["loc"] for each in found)
    return error["type"] == "default_factory_not_called"


def _is_within(error: ErrorDetails, refused: Collection[Path], root: type[Section]) -> bool:
    path = spot(error["loc"], root).path
    return any(path[: len(each)] == each for each in refused)


def _unknown_path(error: ErrorDetails, meant: Mapping[Path, Any], root: type[Section]) -> Path:
    """Return the path of the value that is unknown because of an error."""
    here = spot(error["loc"], root)
    if error["type"] == "extra_forbidden":
        return spot(_meant_key(error, root), root).path
    if here.choice is not None and here.path in meant:
        return (*here.path, here.choice.key)
    return here.path


def _meant_key(error: ErrorDetails, root: type[Section]) -> tuple[str | int, ...]:
    """Return the location of the key that was probably meant by an unknown one."""
    *around, word = error["loc"]
    return (*around, nearest(str(word), spot(tuple(around), root).keys) or word)


@dataclass(frozen=True)
class _Rest:
    """Makes sections that lack what is wrong.

    wrong: paths of wrong values. meant: for sections whose kind does not exist, the key and the kind that was meant.
    """

    wrong: Collection[Path]
    meant: Mapping[Path, Mapping[str, str]]
    context: Context

    def section(self, section: type[Section], given: Mapping[str, Any], path: Path) -> Section:
        """Return a section of which only the right values are known."""
        known: dict[str, Any] = {}
        for number, (key, annotation) in enumerate(key_types(section).items()):
            here, field = (*path, key), section.model_fields[key]
            computed = field.default_factory_takes_validated_data and len(known) < number
            try:
                if key in given:
                    known[key] = self._value(annotation, given[key], here)
                elif here not in self.wrong and not field.is_required() and not computed:
                    known[key] = field.get_default(call_default_factory=True, validated_data=known)
            except Unknown:
                continue
        made = section.model_construct(**known)
        for key in key_types(section).keys() - known.keys():
            made.__dict__.pop(key, None)
        return made

    def _value(self, annotation: Any, given: Any, path: Path) -> Any:
        """Return a value, in which sections may lack something. Raises Unknown if the value itself is wrong."""
        if path in self.wrong:
            raise Unknown(path)
        if all(wrong[: len(path)] != path for wrong in self.wrong):
            try:
                return TypeAdapter(annotation).validate_python(given, context=self.context)
            except ValidationError as error:  # of more that is wrong than was told
                raise Unknown(path) from error
        if isinstance(given, dict):
            given = {**given, **self.meant.get(path, {})}
        chosen = selected(annotation, given)
        section = section_of(chosen)
        if section is not None and isinstance(given, dict):
            return self.section(section, given, path)
        if isinstance(given, list) and has_any_length(chosen):
            return tuple(self._value(item_of(chosen), each, (*path, index)) for index, each in enumerate(given))
        raise Unknown(path)
