"""Message and hint for a value of the wrong type, for one out of bounds, and for a word that is not known."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from pydantic_core import ErrorDetails

from alray.config.loading.source_locations import SourceLocation
from alray.config.loading.usual_names import value_meant
from alray.config.loading.yaml_text import write_yaml
from alray.config.sections.grammar import Spot
from alray.config.sections.section import describe, listed
from alray.core.counting import counted

Words = tuple[str, str]
"""The message and the hint of a problem."""
_Translate = Callable[[dict[str, Any], Any, Spot, SourceLocation | None], Words]
"""From the context of pydantic's error, the wrong value, its position and its location to words."""


def value_message(error: ErrorDetails, here: Spot, at: SourceLocation | None) -> Words:
    """Return message and hint for an error of a single value.

    Args:
        at: where the value is; None if only a section around it has a location.
    """
    return _VALUES[error["type"]](error.get("ctx", {}), error["input"], here, at)


def _expected(what: str, meant: Callable[[Any], str | None], hint: str) -> _Translate:
    """
    Args:
        meant: returns what to write instead of a value, if that is clear.
        hint: what to say otherwise.
    """

    def translate(context: dict[str, Any], value: Any, here: Spot, at: SourceLocation | None) -> Words:
        mend = meant(value)
        message = f"expected {what}, got {describe(value)}"
        if mend is None:
            return message, f"{hint}{_or_leave_out(here)}"
        if meant is _as_text and at is not None and re.fullmatch(r"[-+.\w]+", at.written or ""):
            mend = f"'{at.written}'"  # the zeros of 007 stay
        word = at.as_override(mend) if at is not None else None
        if word is not None and re.search(r"['\"\s]", mend):
            return message, f"write `{mend}`, in a shell as `{word}`"
        return message, f"write `{mend}`" + (" without quotes" if mend == value else "")

    return translate


def _bound(words: str, name: str) -> _Translate:
    def translate(context: dict[str, Any], value: Any, here: Spot, at: SourceLocation | None) -> Words:
        bound = context[name]
        wanted = f"{words} {f'{bound:g}' if isinstance(bound, float) else bound}"
        return f"must be {wanted}, got {describe(value)}", f"write a number that is {wanted}{_or_leave_out(here)}"

    return translate


def _items(words: str, name: str) -> _Translate:
    def translate(context: dict[str, Any], value: Any, here: Spot, at: SourceLocation | None) -> Words:
        wanted, given = int(context[name]), int(context["actual_length"])
        message = f"expected {words} {counted(wanted, 'entry', 'entries')}, got {given}"
        change = counted(abs(wanted - given), "entry", "entries")
        return message, f"{'add' if given < wanted else 'remove'} {change}{_or_leave_out(here)}"

    return translate


def _literal(context: dict[str, Any], value: Any, here: Spot, at: SourceLocation | None) -> Words:
    known = [word.strip("'") for word in context["expected"].replace(" or ", ", ").split(", ")]
    meant = value_meant(value, known) if isinstance(value, str) else None
    message = f"expected {listed(known)}, got {describe(value)}"
    if meant is not None:
        return message, f"did you mean `{meant}`?"
    return message, f"write {'one of these' if len(known) > 1 else f'`{known[0]}`'}{_or_leave_out(here)}"


def _section(context: dict[str, Any], value: Any, here: Spot, at: SourceLocation | None) -> Words:
    hint = f"write a section with the keys {', '.join(here.keys)}" if here.keys else "write a section, such as {a: 1}"
    return f"expected a section, got {describe(value)}", f"{hint}{_or_leave_out(here)}"


def _or_leave_out(here: Spot) -> str:
    """Return the end of a hint if the key has a default."""
    if here.field is None or here.field.is_required():
        return ""
    default = here.field.default
    if isinstance(default, bool):
        default = str(default).lower()
    shown = f" for {default}" if isinstance(default, str | int | float) else ""
    return f", or leave the key out{shown}"


def _as_integer(value: Any) -> str | None:
    if isinstance(value, list) and len(value) == 1:
        return _as_integer(value[0])
    number = _as_number(value)
    return None if number is None or float(number) % 1 else str(int(float(number)))


def _as_number(value: Any) -> str | None:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return str(value) if math.isfinite(float(value)) else None
    except ValueError:
        return None


def _as_flag(value: Any) -> str | None:
    words = {"true": ("yes", "on", "y", "true", "1"), "false": ("no", "off", "n", "false", "0")}
    return next((flag for flag, alike in words.items() if str(value).lower() in alike), None)


def _as_text(value: Any) -> str | None:
    return f"'{value}'" if isinstance(value, int | float) and not isinstance(value, bool) else None


def _as_list(value: Any) -> str | None:
    return " ".join(map(str.strip, write_yaml([value]).splitlines())) if isinstance(value, str | int | float) else None


_VALUES: dict[str, _Translate] = {
    "int_type": _expected("an integer", _as_integer, "write a whole number"),
    "int_from_float": _expected("an integer", _as_integer, "write a whole number"),
    "int_parsing_size": _expected("an integer below 2^63", lambda value: None, "write a smaller number"),
    "float_type": _expected("a number", _as_number, "write a number"),
    "bool_type": _expected("true or false", _as_flag, "write true or false"),
    "string_type": _expected("a text", _as_text, "write a text"),
    "string_unicode": _expected("a text in UTF-8", lambda value: None, "write a text of whole characters"),
    "string_pattern_mismatch": _expected(  # `model.layers` alone has a pattern
        "names with dots between them", lambda value: None, "write names with dots between them, such as encoder.layers"
    ),
    "tuple_type": _expected("a list", _as_list, "write a list: each entry after a `-`, or all of them in [ ]"),
    "dict_type": _section,
    "model_type": _section,
    "model_attributes_type": _section,
    "finite_number": _expected("a finite number", lambda value: None, "write a finite number"),
    "greater_than": _bound("greater than", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("less than", "lt"),
    "less_than_equal": _bound("at most", "le"),
    "too_short": _items("at least", "min_length"),
    "too_long": _items("at most", "max_length"),
    "literal_error": _literal,
}
"""The words for each type of pydantic's errors that the models can raise."""
