"""Turns pydantic's errors into messages in plain English, with a location and a hint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from pydantic_core import ErrorDetails

from alray.config.loading.source_locations import COMMAND_LINE, SourceLocations
from alray.config.loading.usual_names import asked, key_elsewhere, key_here, value_meant
from alray.config.loading.value_messages import Words, value_message
from alray.config.sections.grammar import Spot, spot_of_error
from alray.config.sections.own_code import FORM, PREFIX
from alray.config.sections.paths import Path, key_text
from alray.config.sections.section import ANCHORS, PLAIN, Section, describe
from alray.config.sections.spec import Spec
from alray.core.errors import Problem
from alray.core.packages import provided

WRONG_KIND = ("union_tag_invalid", "union_tag_not_found")
"""pydantic's types of errors for a section whose `kind`, `source` or `block` does not exist or is missing."""


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
    return short.get(word.lower()) or value_meant(word, here.known)


def unknown_key(path: Path, around: Spot, locations: SourceLocations, root: type[Section] = Spec) -> Words:
    """Return message and hint for a key that the section `around` it does not have.

    If only another section has it, the command line gets the whole override to write.
    """
    word, known = str(path[-1]), around.keys
    meant = key_here(word, known)
    if meant is None:
        meant = key_elsewhere(word, root, path[:-1])
        location = locations.of(path)
        if meant is not None and location.file == COMMAND_LINE and location.text is not None:
            value, field = location.text.partition("=")[2], spot_of_error(tuple(meant.split(".")), root).field
            words = (get_args(field.annotation) or field.examples or ()) if field is not None else ()
            meant += f"={value_meant(value, [word for word in words if isinstance(word, str)]) or value}"
    if meant is not None:
        return "unknown key", asked(meant)
    if anchor := locations.anchor_below(path):
        return "unknown key", (
            f"to hold an anchor alone, a key stands at the top and begins with `{ANCHORS}`, such as "
            f"`{ANCHORS}{str(path[0]).lstrip('.')}`; or write `&{anchor}` before the value where it is used first"
        )
    return "unknown key", f"known: {', '.join(known)}" if known else "remove it"


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
    if group == "alray.trackers" and word in _TRACKERS:
        return f"unknown {noun} `{word}`", _TRACKERS[word]
    if word.startswith(PREFIX) and not here.is_open:
        return f"unknown {noun} `{word}`", f"no class of yours is possible here; known: {', '.join(here.known)}"
    meant = meant_kind(word, here) or value_meant(word, of_packages)
    hint = f"did you mean `{meant}`? " if meant is not None else ""
    own = f"your classes as {FORM}"
    if known := [*here.known, *of_packages]:
        hint += f"known: {', '.join(known)}{f', and {own}' if here.is_open else ''}"
    else:
        hint += f"no installed package provides any; known: {own}"
    return f"unknown {noun} `{word}`", hint


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
    elif kind == PLAIN:
        context = error["ctx"]
        words = str(context["message"]), str(context["hint"])
    else:
        words = value_message(error, here, locations.exactly(path))
    return problem(locations, path, *words, at_key=kind == "extra_forbidden")


def _wrong_kind(error: ErrorDetails, here: Spot) -> tuple[Path, Words]:
    value = error["input"]
    assert here.choice is not None
    key = here.choice.key
    if not isinstance(value, dict):
        return here.path, (
            f"expected a section, got {describe(value)}",
            f"write, for example, {{{key}: {(here.known or [FORM])[0]}}}",
        )
    path = (*here.path, key)
    if key not in value:
        return path, ("this key is required", f"known: {_known(here)}")
    word = value[key]
    if not isinstance(word, str):
        return path, (f"expected the name of a {key}, got {describe(word)}", f"known: {_known(here)}")
    return path, unknown_word(key, word, here)


def _known(here: Spot) -> str:
    return ", ".join([*here.known, FORM] if here.is_open else here.known)


def _first_sentence(here: Spot) -> str:
    """Return the first sentence of a field's docstring, to be read in brackets."""
    description = (here.field.description if here.field is not None else None) or "its value"
    sentence = description.split(". ")[0].rstrip(".")
    return f"{sentence[0].lower()}{sentence[1:]}"
