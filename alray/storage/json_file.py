"""JSON files of run and study folders: each is read as a typed value, and whatever is wrong with one is one error."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from alray.errors import CheckpointError
from alray.storage.location import Location

T = TypeVar("T")

RESTORE = "another program changed this file; restore it"


def read_json(file: Location, kind: type[T], mend: str = RESTORE) -> T:
    """The JSON of a file as a value of this type: a model, a dataclass, or such as `dict[str, str]`.

    Raises CheckpointError where the file is not JSON, is not UTF-8, or does not hold such a value. mend: what to do
    then. Raises OSError where the file cannot be read.
    """
    try:
        value: T = _adapter(cast(Hashable, kind)).validate_json(file.read_bytes())
    except ValidationError as error:
        said, line = f"not written by alray: {first_fault(error)}", None
        syntax = re.search(r"^Invalid JSON: (.*) at line (\d+) column \d+$", error.errors()[0]["msg"])
        if syntax is not None:
            said, line = f"not JSON: {syntax[1]}", int(syntax[2])
        raise CheckpointError(said, file=str(file), line=line, mend=mend) from error
    return value


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong: its keys and pydantic's words, which say where in the text a syntax error is."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
