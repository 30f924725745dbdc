"""Turns pydantic's errors into messages in plain English, with a location and a hint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError, create_model
from pydantic_core import ErrorDetails

from alray.config.loading.source_locations import COMMAND_LINE, SourceLocation, SourceLocations
from alray.config.loading.yaml_text import read_yaml
from alray.config.sections.choice import ByShape
from alray.config.sections.grammar import Spot, choice_of, key_types, sections_of, spot_of_error
from alray.config.sections.own_code import FORM, PREFIX
from alray.config.sections.paths import Path, key_text
from alray.config.sections.section import PLAIN, Section, describe, did_you_mean, listed, meanings, nearest
from alray.config.sections.spec import Spec
from alray.config.sections.usual_names import usual_name
from alray.core.counting import counted
from alray.core.errors import Problem, SpecError
from alray.core.packages import provided

WRONG_KIND = ("union_tag_invalid", "union_tag_not_found")
"""pydantic's types of errors for a section whose `kind`, `source` or `block` does not exist or is missing."""
_WORDS = {
    "int_type": ("expected an integer", "write a whole number"),
    "int_from_float": ("expected an integer", "write a whole number"),
    "int_parsing_size": ("expected an integer below 2^63", "write a smaller number"),
    "float_type": ("expected a number", "write a number"),
    "finite_number": ("expected a finite number", "write a finite number"),
    "bool_type": ("expected true or false", "write true or false"),
    "string_type": ("expected a text", "write a text"),
    "string_unicode": ("expected a text in UTF-8", "write a text of whole characters"),
    "string_too_short": ("expected a text that is not empty", "write at least one character"),
    "string_pattern_mismatch": (  # `model.layers` alone has a pattern
        "expected names with dots between them",
        "write names with dots between them, such as encoder.layers",
    ),
    "tuple_type": ("expected a list", "write a list: each entry after a `-`, or all of them in [ ]"),
    "dict_type": ("expected a section", "write a section{keys}"),
    "model_type": ("expected a section", "write a section{keys}"),
    "model_attributes_type": ("expected a section", "write a section{keys}"),
    "greater_than": ("must be greater than {gt}", "write a number that is greater than {gt}"),
    "greater_than_equal": ("must be at least {ge}", "write a number that is at least {ge}"),
    "less_than": ("must be less than {lt}", "write a number that is less than {lt}"),
    "less_than_equal": ("must be at most {le}", "write a number that is at most {le}"),
    "too_short": ("expected at least {entries}", "add {change}"),
    "too_long": ("expected at most {entries}", "remove {change}"),
    "literal_error": ("expected {known}", "write {known}"),
}
"""For each type of pydantic's errors that the values of the models can raise: what was expected, and what to write."""

Words = tuple[str, str]
"""The message and the hint of a problem."""


def problem(
    locations: SourceLocations, path: Path, message: str, hint: str | None = None, *, at_key: bool = False
) -> Problem:
    """Return a problem with the value at `path`, with the location of that value.

    Args:
        at_key: with the key itself.
    """
    location = locations.of(path) if at_key else locations.of_fault(path, message)
    return location.problem(message, hint, key_text(path) or None, at_key=at_key)


def problems_of(
    errors: Iterable[ErrorDetails], locations: SourceLocations, root: type[Section] = Spec
) -> list[Problem]:
    """Return the problems for the errors of a validation.

    Args:
        root: the model of the whole document.
    """
    return [_problem(error, locations, root) for error in errors]


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in the order of the lines of the file, and those of the command line last."""
    return sorted(dict.fromkeys(problems), key=lambda one: (one.file == COMMAND_LINE, one.line or 0))


def meant_kind(word: Any, here: Spot) -> str | None:
    """Return the tag of the kind that a word names or probably means. It may be the field's abbreviation."""
    if not isinstance(word, str) or here.choice is None:
        return None
    tag = here.choice({here.choice.key: word})
    if tag in here.members:
        return tag
    short = {member.abbreviation.lower(): kind for kind, member in here.members.items() if member.abbreviation}
    meant = nearest(word, [*here.known, *short])
    return short.get(meant or "", meant)


def unknown_key(path: Path, around: Spot, locations: SourceLocations, root: type[Section] = Spec) -> Words:
    """Return message and hint for a key that the section `around` it does not have.

    If only another section has it, the command line gets the whole override to write.
    """
    word, known = str(path[-1]), around.keys
    joined = re.match(r"(\w+) ?([:{].*)", word)
    if joined is not None and joined[1] in known:
        return "unknown key", f"write a colon and a blank after `{joined[1]}`"
    meant = nearest(word, known)
    if meant is None:
        meant = key_elsewhere(word, root, path[:-1])
        location = locations.of(path)
        if meant is not None and location.file == COMMAND_LINE and location.text is not None:
            value, field = location.text.partition("=")[2], spot_of_error(tuple(meant.split(".")), root).field
            words = (get_args(field.annotation) or field.examples or ()) if field is not None else ()
            meant += f"={nearest(value, [word for word in words if isinstance(word, str)]) or value}"
    return "unknown key", did_you_mean(meant, f"known: {', '.join(known)}" if known else "remove it")


def key_elsewhere(word: str, root: type[Section] = Spec, around: Path = ()) -> str | None:
    """The key of this name in the grammar, such as `run.epochs`: the only one, or the only one that is not deeper.

    None if there is no such key, or if it lies in the section `around` itself, where another kind has it. Entries of
    lists are not looked at.
    """
    for name in (word, usual_name(word)):
        found = _by_name(root).get(name, ())
        highest = [path for path in found if len(path) == min(map(len, found))]
        if len(highest) == 1 and around not in (highest[0], highest[0][:-1]):
            return key_text(highest[0])
    return None


@cache
def _by_name(root: type[Section]) -> dict[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for path in dict.fromkeys(_paths(root, ())):
        name = str(path[-1])
        found[name] = (*found.get(name, ()), path)
    return found


def _paths(section: type[Section], around: Path) -> Iterator[Path]:
    for name, annotation in key_types(section).items():
        yield (*around, name)
        for inner in sections_of(annotation):
            yield from _paths(inner, (*around, name))


_PACKAGE = "it is in a package of its own: pip install ./plugins/{}, in a clone of alray"
_TRACKERS = {
    "tensorboard": "leave it out: its files are always written, into `tensorboard/` of the run folder; `pip install "
    "tensorboard`, then `tensorboard --logdir runs` shows them",
    "mlflow": _PACKAGE.format("mlflow"),
    "wandb": _PACKAGE.format("wandb"),
}
"""What to write for trackers of other projects."""


def unknown_word(noun: str, word: str, here: Spot) -> Words:
    """Return message and hint for a `kind`, `source` or `block` that does not exist."""
    group = here.choice.group if here.choice is not None else None
    of_packages = [] if group is None else [name for name in provided(group) if name not in here.members]
    message = f"unknown {noun} `{word}`"
    if group == "alray.trackers" and word in _TRACKERS:
        return message, _TRACKERS[word]
    if word.startswith(PREFIX) and not here.is_open:
        return message, f"no class of yours is possible here; known: {', '.join(here.known)}"
    meant = meant_kind(word, here) or nearest(word, of_packages)
    hint = f"{did_you_mean(meant, '')} ".lstrip()
    own = f"your classes as {FORM}"
    if known := [*here.known, *of_packages]:
        return message, f"{hint}known: {', '.join(known)}{f', and {own}' if here.is_open else ''}"
    return message, f"{hint}no installed package provides any; known: {own}"


def _problem(error: ErrorDetails, locations: SourceLocations, root: type[Section]) -> Problem:
    location = tuple(error["loc"])
    here = spot_of_error(location, root)
    path = here.path
    kind = error["type"]
    if kind == "extra_forbidden":
        words = unknown_key(path, spot_of_error(location[:-1], root), locations, root)
    elif kind in WRONG_KIND:
        path, words = _wrong_kind(error, here)
    elif kind == "missing" and isinstance(path[-1], int):
        words = f"entry {path[-1]} is missing", f"add it ({_first_sentence(spot_of_error(location[:-1], root))})"
        path = path[:-1]
    elif kind == "missing":
        words = "this key is required", f"add `{path[-1]}: ...` ({_first_sentence(here)})"
    else:
        words = _wrong_value(error, here, locations.exactly(path))
    return problem(locations, path, *words, at_key=kind == "extra_forbidden")


def _wrong_kind(error: ErrorDetails, here: Spot) -> tuple[Path, Words]:
    value = error["input"]
    assert here.choice is not None
    key = here.choice.key
    known = f"known: {', '.join([*here.known, FORM] if here.is_open else here.known)}"
    if not isinstance(value, dict):
        return here.path, (f"expected a section, got {describe(value)}", f"write a section with its `{key}`; {known}")
    path = (*here.path, key)
    if key not in value:
        misspelt = next((f"write `{key}` in place of `{each}`; " for each in value if nearest(str(each), [key])), "")
        return path, ("this key is required", f"{misspelt}{known}")
    word = value[key]
    if not isinstance(word, str):
        return path, (f"expected the name of a {key}, got {describe(word)}", known)
    return path, unknown_word(key, word, here)


def _first_sentence(here: Spot) -> str:
    """Return the first sentence of a field's docstring, to be read in brackets."""
    meaning = "its value" if here.around is None else meanings(here.around).get(str(here.path[-1]), "its value")
    sentence = meaning.split(". ")[0].rstrip(".")
    return f"{sentence[0].lower()}{sentence[1:]}"


def _wrong_value(error: ErrorDetails, here: Spot, at: SourceLocation | None) -> Words:
    """Message and hint for a value of the wrong type, for one out of bounds, and for a word that is not known.

    The hint is the first near value that the key takes, if the key alone refuses this one too.

    Args:
        at: where the value is; None if only a section around it has a location.
    """
    value, context = error["input"], error.get("ctx", {})
    if error["type"] == PLAIN:
        message, hint = str(context["message"]), str(context["hint"])
    else:
        message, hint = _in_words(error, here)
    written = at.written if at is not None and re.fullmatch(r"[-+.\w]+", at.written or "") else None
    of_key = error["msg"] in _faults(here, value)
    for near in _near(value, written) if of_key else ():
        if not _faults(here, near):
            text = json.dumps(near, ensure_ascii=False)
            word = at.as_override(text) if at is not None and re.search(r"[\"\s\[]", text) else None
            shell = "" if word is None else f", in a shell as `{word}`"
            return message, f"write `{text}`{' without quotes' if text == value else ''}{shell}"
    return message, hint


def _in_words(error: ErrorDetails, here: Spot) -> Words:
    value, got = error["input"], describe(error["input"])
    told = {name: f"{each:g}" if isinstance(each, float) else each for name, each in error.get("ctx", {}).items()}
    examples = [f", such as {{a: {each}}}" for each in (1, "b") if not _faults(here, {"a": each})]
    of_names = next(iter(examples), " with a name for each entry")
    told["keys"] = f" with the keys {', '.join(here.keys)}" if here.keys else of_names
    if "actual_length" in told:
        got = str(told["actual_length"])
        wanted = int(told.get("min_length") or told["max_length"])
        told["entries"] = counted(wanted, "entry", "entries")
        told["change"] = counted(abs(wanted - int(got)), "entry", "entries")
    expected, hint = _WORDS[error["type"]]
    if error["type"] == "literal_error":
        known = [word.strip("'") for word in told["expected"].replace(" or ", ", ").split(", ")]
        choice = choice_of(here.key_type)
        shape = f" or a {choice.tag}" if isinstance(choice, ByShape) else ""
        keys = ", ".join(key for each in sections_of(here.key_type) for key in each.model_fields)
        told["known"] = f"{listed(known)}{shape}{f' with the keys {keys}' if keys else ''}"
        if isinstance(value, str) and (meant := nearest(value, known)) is not None:
            return f"{expected.format(**told)}, got {got}", did_you_mean(meant, "")
        if shape or len(known) > 1:
            hint = "write one of these"
    return f"{expected.format(**told)}, got {got}", f"{hint.format(**told)}{_or_leave_out(here)}"


def _or_leave_out(here: Spot) -> str:
    """Return the end of a hint if the key has a default."""
    if here.field is None or here.field.is_required():
        return ""
    default = here.field.default
    if isinstance(default, bool):
        default = str(default).lower()
    shown = f" for {default}" if isinstance(default, str | int | float) else ""
    return f", or leave the key out{shown}"


_NAMES: dict[str, bool | None] = {
    **dict.fromkeys(("true", "yes", "on", "y"), True),
    **dict.fromkeys(("false", "no", "off", "n"), False),
    "none": None,
}
"""What other languages write for the values of YAML."""


def _near(value: Any, written: str | None = None) -> Iterator[Any]:
    """Values near a wrong one, the likeliest first: without quotes or brackets, as a whole number, as a flag, as text,
    in brackets.

    Args:
        written: how a number is written: the zeros of 007 stay.
    """
    within: list[Any] = []
    if isinstance(value, str):
        within = [_NAMES[value.lower()]] if value.lower() in _NAMES else [*_read(value), *_read(f"[{value}]")]
    elif isinstance(value, list) and len(value) == 1:
        within = value
    elif value is False:
        within = [None]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from [int(value)] if isinstance(value, float) and value.is_integer() else []
        yield from [bool(value)] if value in (0, 1) else []
        yield written or str(value)
    for each in within:
        yield each
        if isinstance(value, list) or not isinstance(each, str | list):
            yield from _near(each)
    if not isinstance(value, list | dict):
        yield [value]


def _read(text: str) -> list[Any]:
    """The value of a text in YAML, if it has one."""
    try:
        return [read_yaml(text, "")[0]]
    except SpecError:
        return []


def _faults(here: Spot, value: Any) -> list[str]:
    """What pydantic says of a value under the rules of sections, whatever else is in the section."""
    try:
        _alone(here.key_type).model_validate({"value": value})
    except ValidationError as error:
        return [each["msg"] for each in error.errors()]
    return []


@cache
def _alone(annotation: Any) -> type[BaseModel]:
    return create_model("Alone", __config__=Section.model_config, value=(annotation, ...))
