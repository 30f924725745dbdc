"""Sections that name a class of the user, `python:package.module.Class`. Nothing is imported here."""

from __future__ import annotations

import keyword
import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from alray.spec.section import Section, refusal

PREFIX = "python:"
FORM = PREFIX + "package.module.Class"


@dataclass(frozen=True)
class PythonReference:
    """A class by name: `module` is dotted, `name` is the class inside it."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.module}.{self.name}"


def is_python_reference(text: str) -> bool:
    """Whether `text` claims to be a reference, well formed or not."""
    return text.startswith(PREFIX)


def parse_python_reference(text: str) -> PythonReference:
    """Take `python:package.module.Class` apart.

    Raises ValueError, with the reason in plain words, where the text has not that form.
    """
    if not is_python_reference(text):
        raise ValueError(f"`{text}` does not begin with `{PREFIX}`")
    parts = text.removeprefix(PREFIX).split(".")
    for part in parts:
        if not part.isidentifier() or keyword.iskeyword(part):
            raise ValueError(f"`{text}` is not of the form {FORM}: `{part}` is no Python name")
    if len(parts) < 2:
        raise ValueError(f"`{text}` names no module: the form is {FORM}")
    return PythonReference(".".join(parts[:-1]), parts[-1])


def _reference(text: str) -> str:
    try:
        parse_python_reference(text)
    except ValueError as error:
        raise refusal(str(error)) from error
    return text


def _finite(value: Any) -> Any:
    """A free value as YAML gives it, at any depth without NaN and infinities."""
    if isinstance(value, float) and not math.isfinite(value):
        raise refusal(f"expected a finite number, got {value}")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _finite(item)
    return value


Reference = Annotated[str, AfterValidator(_reference), WithJsonSchema({"type": "string", "pattern": rf"^{PREFIX}"})]
"""A class of the user's own, as text; see `alray.spec.own_code`."""

FreeValue = Annotated[Any, AfterValidator(_finite)]


class OwnCode(Section):
    """A section whose further keys are the fields of the user's class; final classes set `extra="allow"`."""

    __pydantic_extra__: dict[str, FreeValue]

    @property
    def fields(self) -> dict[str, Any]:
        """What the user's class is called with, by name."""
        return dict(self.__pydantic_extra__)
