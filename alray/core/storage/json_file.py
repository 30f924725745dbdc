"""JSON files of run and study folders: each is read as a typed value, and whatever is wrong with one is one error."""

from __future__ import annotations

import json
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from alray.core.errors import CheckpointError
from alray.core.storage.location import Location, require_file

T = TypeVar("T")

RESTORE = "another program changed this file; restore it"


def read_json(file: Location, kind: type[T], hint: str = RESTORE) -> T:
    """The JSON of a file as a value of this type: a model, a dataclass, or such as `dict[str, str]`.

    Raises CheckpointError where it is no file, is not JSON, is not UTF-8, or does not hold such a value.

    Raises OSError where the file cannot be read.

    Args:
        hint: what to do then.
    """
    require_file(file)
    content = file.read_bytes()
    try:
        # Not pydantic's parser: it refuses the escapes of file names that are not UTF-8.
        value: T = _adapter(cast(Hashable, kind)).validate_python(json.loads(content))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"not JSON: {error.msg}", file=str(file), line=error.lineno, hint=hint) from error
    except ValidationError as error:
        raise CheckpointError(f"not written by alray: {first_fault(error)}", file=str(file), hint=hint) from error
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8, a number of 5,000 digits, deep nesting
        raise CheckpointError(f"not JSON that alray writes: {error}", file=str(file), hint=hint) from error
    return value


def first_fault(error: ValidationError) -> str:
    """The first thing that is wrong: its keys, and the words of the validator or of pydantic, which say where in the
    text a syntax error is."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(map(str, first["loc"]))
    words = first["msg"].removeprefix("Value error, ")  # pydantic's, before the words of a validator
    return f"{path}: {words}" if path else words


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
