"""Turns pydantic's errors into messages in plain English, with a place and a mend."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from pydantic_core import ErrorDetails

from alray.errors import Problem
from alray.spec.grammar import Spot, spot
from alray.spec.models import Spec
from alray.spec.own_code import PREFIX
from alray.spec.places import COMMAND_LINE, Path, Places, key_text
from alray.spec.section import PLAIN, Section, counted, describe, listed

_SIMILARITY = 0.7  # of two words, to suggest one for the other: `channels` for `chanels`, but not `cpu` for `gpu`

Words = tuple[str, str | None]
"""The message and the mend of a problem."""


def problem(places: Places, path: Path, message: str, mend: str | None = None) -> Problem:
    """Return a problem with the value at `path`, with the place of that value."""
    place = places.of(path)
    return Problem(message, mend, place.file, place.line, key_text(path) or None)


def problems_of(errors: Iterable[ErrorDetails], places: Places, root: type[Section] = Spec) -> list[Problem]:
    """Return the problems for the errors of a validation, in the order of the values in the file.

    root: the model that was validated.
    """
    told = [error for error in errors if not _is_echo(error)]
    meant = {_meant(error, root) for error in told if error["type"] == "extra_forbidden"}
    # A misspelt key is not reported as missing, too.
    told = [error for error in told if error["type"] != "missing" or tuple(error["loc"]) not in meant]
    found = [_problem(error, places, root) for error in told]
    return sorted(found, key=lambda one: (one.file == COMMAND_LINE, one.line or 0))


def _is_echo(error: ErrorDetails) -> bool:
    """pydantic also reports a list as too short if it has wrong entries. Those entries are already reported."""
    return error["type"] == "too_short" and len(error["input"]) >= error["ctx"]["min_length"]


def _meant(error: ErrorDetails, root: type[Section]) -> tuple[str | int, ...]:
    *around, word = error["loc"]
    return (*around, nearest(str(word), spot(tuple(around), root).keys) or "")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that the user probably meant by `word`, if there is one."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=_SIMILARITY)
    return by_lower[matches[0]] if matches else None


def unknown_key(word: str, known: list[str]) -> Words:
    """Return message and mend for a key that is not one of the `known` keys."""
    meant = nearest(word, known)
    if meant is not None:
        return "unknown key", f"did you mean `{meant}`?"
    return "unknown key", f"known: {', '.join(known)}" if known else None


def unknown_word(noun: str, word: str, here: Spot) -> Words:
    """Return message and mend for a `kind`, `source` or `block` that does not exist."""
    meant = nearest(word, here.known)
    mend = f"did you mean `{meant}`? known: " if meant is not None else "known: "
    mend += ", ".join(here.known)
    if here.is_open:
        mend += f", and your own classes as {PREFIX}package.module.Class"
    return f"unknown {noun} `{word}`", mend


def _problem(error: ErrorDetails, places: Places, root: type[Section]) -> Problem:
    location = tuple(error["loc"])
    here = spot(location, root)
    path = here.path
    kind = error["type"]
    if kind == "extra_forbidden":
        words = unknown_key(str(path[-1]), spot(location[:-1], root).keys)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        path, words = _tag(error, here)
    elif kind == "missing" and isinstance(path[-1], int):
        words = f"entry {path[-1]} is missing", _first_sentence(spot(location[:-1], root).description)
        path = path[:-1]
    elif kind == "missing":
        words = "this key is required", _first_sentence(here.description)
    elif kind == PLAIN:
        context = error["ctx"]
        words = str(context["message"]), context["mend"]
    else:
        words = _value(error, here)
    return problem(places, path, *words)


def _tag(error: ErrorDetails, here: Spot) -> tuple[Path, Words]:
    value = error["input"]
    assert here.choice is not None
    key = here.choice.key
    first = here.known[0]
    if not isinstance(value, dict):
        return here.path, (f"expected a section, got {describe(value)}", f"write, for example, {{{key}: {first}}}")
    path = (*here.path, key)
    if key not in value:
        return path, ("this key is required", f"known: {_known(here)}")
    word = value[key]
    if not isinstance(word, str):
        return path, (f"expected the name of a {key}, got {describe(word)}", f"known: {_known(here)}")
    return path, unknown_word(key, word, here)


def _known(here: Spot) -> str:
    return ", ".join([*here.known, f"{PREFIX}package.module.Class"] if here.is_open else here.known)


def _first_sentence(description: str | None) -> str | None:
    if description is None:
        return None
    sentence = description.split(". ")[0].rstrip(".")
    return f"it is: {sentence[0].lower()}{sentence[1:]}"


def _value(error: ErrorDetails, here: Spot) -> Words:
    translate = _VALUES[error["type"]]
    return translate(error.get("ctx", {}), error["input"], here)


Translate = Callable[[dict[str, Any], Any, Spot], Words]


def _expected(what: str) -> Translate:
    return lambda context, value, here: (f"expected {what}, got {describe(value)}", None)


def _bound(words: str, name: str) -> Translate:
    def translate(context: dict[str, Any], value: Any, here: Spot) -> Words:
        bound = context[name]
        shown = f"{bound:g}" if isinstance(bound, float) else f"{bound}"
        return f"must be {words} {shown}, got {describe(value)}", None

    return translate


def _items(words: str, name: str) -> Translate:
    def translate(context: dict[str, Any], value: Any, here: Spot) -> Words:
        return f"expected {words} {counted(context[name], 'entry', 'entries')}, got {context['actual_length']}", None

    return translate


def _literal(context: dict[str, Any], value: Any, here: Spot) -> Words:
    known = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
    meant = nearest(value, known) if isinstance(value, str) else None
    said = f"expected {listed(known)}, got {describe(value)}"
    return said, f"did you mean `{meant}`?" if meant is not None else None


def _section(context: dict[str, Any], value: Any, here: Spot) -> Words:
    keys = here.keys
    return f"expected a section, got {describe(value)}", f"its keys: {', '.join(keys)}" if keys else None


_VALUES: dict[str, Translate] = {
    "int_type": _expected("an integer"),
    "int_from_float": _expected("an integer"),
    "int_parsing_size": _expected("an integer below 2^63"),
    "float_type": _expected("a number"),
    "bool_type": _expected("true or false"),
    "string_type": _expected("a text"),
    "tuple_type": _expected("a list"),
    "dict_type": _section,
    "model_type": _section,
    "model_attributes_type": _section,
    "finite_number": _expected("a finite number"),
    "greater_than": _bound("greater than", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("less than", "lt"),
    "less_than_equal": _bound("at most", "le"),
    "too_short": _items("at least", "min_length"),
    "too_long": _items("at most", "max_length"),
    "literal_error": _literal,
}
"""The message for each type of pydantic's errors that the models can raise."""
