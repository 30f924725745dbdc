"""Reads a document as its model, or finds all errors of its values at once."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from alray.config.loading.messages import WRONG_KIND, meant_kind, problems_of
from alray.config.loading.yaml_text import Parsed
from alray.config.sections.grammar import spot_of_error
from alray.config.sections.section import Section, nearest
from alray.core.errors import Problem

Root = TypeVar("Root", bound=Section)

MOST_ERRORS = 100
"""No more errors of one document are told."""


def read_values(root: type[Root], parsed: Parsed, directory: FilePath | None) -> tuple[Root | None, list[Problem]]:
    """The document as its model, None if a value is wrong, and all problems of the values, also those of `parsed`.

    Args:
        directory: where relative paths begin.
    """
    context = {"directory": directory}
    model, found = _validated(root, parsed.value, context)
    found = found[:MOST_ERRORS]
    for error in [each for each in found if each["type"] in WRONG_KIND]:
        found += _errors_of_meant_kind(error, root, context)
    told = [each for each in found if not _is_echo(each, found, root) and not _is_within(each, parsed, root)]
    problems = [*parsed.problems.values(), *problems_of(told[:MOST_ERRORS], parsed.locations, root)]
    return (None if problems else model), problems


def _validated(
    section: type[Root], value: Any, context: dict[str, FilePath | None]
) -> tuple[Root | None, list[ErrorDetails]]:
    try:
        return section.model_validate(value, context=context), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _errors_of_meant_kind(
    error: ErrorDetails, root: type[Section], context: dict[str, FilePath | None]
) -> list[ErrorDetails]:
    """The other errors of a section whose kind does not exist, if it is clear which kind was meant."""
    here, value = spot_of_error(error["loc"], root), error["input"]
    if here.choice is None or not isinstance(value, dict):
        return []
    kind = meant_kind(value.get(here.choice.key), here)
    if kind is None:
        return []
    _, found = _validated(here.members[kind], {**value, here.choice.key: kind}, context)
    for each in found:
        each["loc"] = (*error["loc"], kind, *each["loc"])
    return found


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


def _meant_key(error: ErrorDetails, root: type[Section]) -> tuple[str | int, ...]:
    """The location of the key that was probably meant by an unknown one."""
    *around, word = error["loc"]
    return (*around, nearest(str(word), spot_of_error(tuple(around), root).keys) or word)


def _is_within(error: ErrorDetails, parsed: Parsed, root: type[Section]) -> bool:
    """Whether an error is about a value that YAML itself refused."""
    path = spot_of_error(error["loc"], root).path
    return any(path[: len(refused)] == refused for refused in parsed.problems)
