"""What every section of a spec shares: strictness, and the number types with their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

PLAIN = "plain"
"""Type of the errors whose message is already in plain words (see `refusal`)."""


class Section(BaseModel):
    """A mapping of the spec: frozen, without unknown keys, nothing converted behind the writer's back.

    The docstring under each field says what it is, in which unit, and its default where that is not plain.
    JSON Schema and error messages are made from these docstrings.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=False,
    )


def refusal(message: str, mend: str | None = None) -> PydanticCustomError:
    """The error a validator raises: what is wrong, and what to do about it, both in plain words."""
    return PydanticCustomError(PLAIN, "{message}", {"message": message, "mend": mend})


def describe(value: Any) -> str:
    """A value as an error message names it: "the text `abc`", "12", "true", "null", "a list", "a section"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        shown = value.replace("\n", "\\n")
        return f"the text `{shown if len(shown) <= 60 else shown[:57] + '...'}`"
    if isinstance(value, int | float):
        return f"{value}"
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list | tuple):
        return "a list"
    return f"a {type(value).__name__}"


def listed(words: Sequence[str], last: str = "or") -> str:
    """Words as a reader expects them, in code quotes: "`a`", "`a` or `b`", "`a`, `b` or `c`"."""
    quoted = [f"`{word}`" for word in words]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: "1 stage", "2 stages"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def located(value: Any, info: ValidationInfo) -> Path:
    """A path as a spec writes it, made whole: from the folder that `context["directory"]` names."""
    if not isinstance(value, str | Path):
        raise refusal(f"expected a path, got {describe(value)}")
    if not str(value).strip() or "\0" in str(value):
        raise refusal("a path is neither empty nor holds NUL characters")
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:  # "~name" where the machine knows no such home
        raise refusal(f"`{value}` begins with a home folder that this machine does not know") from error
    directory = (info.context or {}).get("directory")
    return path if directory is None else Path(directory) / path


SpecPath = Annotated[Path, BeforeValidator(located)]
"""A path; a relative one is taken from the folder that `context["directory"]` names (the spec's own)."""

PositiveInt = Annotated[int, Field(ge=1)]
Width = Annotated[int, Field(ge=1, le=1_000_000)]
"""Of a layer. Where it is both in and out its square must still be a size that can be counted."""
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
Counts = Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)]
"""Positive integers, at least one. (YAML knows lists, not tuples: hence not strict about that one type.)"""
