"""How sources name the columns of a table, and what is wrong with such names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from alray.config.sections.kind import Finding
from alray.config.sections.paths import Path
from alray.config.sections.section import describe, refusal


def _header(value: Any) -> Any:
    if not isinstance(value, bool) and value != "auto":
        raise refusal(f"expected true, false or `auto`, got {describe(value)}", "write one of them")
    return value


def _column(value: Any) -> Any:
    named = isinstance(value, str) and value != ""
    if not named and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise refusal(f"expected a column, got {describe(value)}", "give its name, or its number, counted from 0")
    return value


def _columns(value: Any) -> Any:
    return [value] if isinstance(value, str | int) else value


def _class_names(value: Any) -> Any:
    """Names, where some may look like numbers: `[0, 1]` is `["0", "1"]`."""
    if not isinstance(value, list | tuple):
        return value
    return [str(name) if isinstance(name, int) and not isinstance(name, bool) else name for name in value]


def _delimiter(value: Any) -> Any:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n':
        raise refusal(
            f"expected one character, got {describe(value)}",
            'write, for example, ";", or "\\t" in double quotes for a tab',
        )
    return value


Header = Annotated[bool | Literal["auto"], BeforeValidator(_header)]
"""Whether the first line names the columns."""
Column = Annotated[str | int, BeforeValidator(_column)]
"""A column of a table: its name in the header, or its number, counted from 0."""
Columns = Annotated[tuple[Column, ...], BeforeValidator(_columns), Field(strict=False, min_length=1)]
ClassNames = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(_class_names),
    Field(strict=False, min_length=1),
]
Delimiter = Annotated[str, BeforeValidator(_delimiter)]
"""The character between two columns of a CSV file."""


def column_faults(
    at: Path,
    *,
    key: str,
    what: str,
    others: Sequence[str | int] | None,
    header: bool | Literal["auto"],
    labels: Sequence[str | int],
    classes: Sequence[str] | None,
) -> Iterator[Finding]:
    """Columns are named only where there is a header, and each has one purpose. Class names differ.

    Args:
        at: where the source is in the spec.
        key: of the columns of samples.
        what: they hold.
        others: these columns.
        labels: the columns of the class or of the labels.
    """
    named = [column for column in (*labels, *(others or ())) if isinstance(column, str)]
    if header is False and named:
        yield (*at, "header"), f"without a header there is no column `{named[0]}`", "give its number, counted from 0"
    # The same column by its name and by its number is found where the file is read.
    for column in others or ():
        if column in labels:
            yield (*at, key), f"the column `{column}` of the label is also a column of {what}", f"leave it out of {key}"
    if classes is not None and len(set(classes)) < len(classes):
        yield (*at, "classes"), "two classes have the same name", "name every class once"
