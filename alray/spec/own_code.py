"""Sections that name a class of the user's own and carry that class's fields."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from alray.spec.python_reference import PREFIX, parse_python_reference
from alray.spec.section import Section, refusal


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
"""A class of the user's own, as text; see `alray.spec.python_reference`."""

FreeValue = Annotated[Any, AfterValidator(_finite)]


class OwnCode(Section):
    """A section whose further keys are the fields of the user's class; final classes set `extra="allow"`."""

    __pydantic_extra__: dict[str, FreeValue]

    @property
    def fields(self) -> dict[str, Any]:
        """What the user's class is called with, by name."""
        return dict(self.__pydantic_extra__)
