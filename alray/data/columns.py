"""The columns of a table: their names, and which of them a spec means."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from alray.config.sections.section import did_you_mean, nearest
from alray.core.errors import DataError

Column = str | int
"""A column by its name, or by its number, counted from 0."""
MOST_SHOWN = 10
"""Names of columns or classes in a message."""


_NO_BREAK = str.maketrans({"\u00a0": " ", "\u2007": " ", "\u202f": " ", "\u200b": "", "\u2060": "", "\ufeff": ""})


def plain(name: str) -> str:
    """A name of a column or a class without what nobody sees: names that look equal are equal. No-break spaces become
    spaces, characters without width and spaces around the name go, and letters are composed (Unicode's NFC)."""
    return unicodedata.normalize("NFC", name.translate(_NO_BREAK)).strip()


def named_columns(names: Sequence[str]) -> list[int]:
    """The numbers of the columns that have a name. pandas writes its index as a column without one, and calls such a
    column `Unnamed: 0` where it reads it."""
    return [at for at, name in enumerate(names) if name and not re.fullmatch(r"Unnamed: \d+|__index_level_\d+__", name)]


def without_name(names: Sequence[str], left: Iterable[int], path: Path, key: str) -> tuple[str, ...]:
    """A sentence about the columns of a file that are left out because they have no name; none if there are none.

    Args:
        left: the numbers of the columns that are not read for another reason.
        key: of the spec that can take such a column.
    """
    numbers = sorted(set(range(len(names))) - set(named_columns(names)) - set(left))
    if not numbers:
        return ()
    which = ", ".join(map(str, numbers))
    return (
        f"{path.name}: column {which}, counted from 0, has no name, as the index that pandas writes, and is left out; "
        f"data.{key} can take it by its number",
    )


def require_distinct(names: Sequence[str], used: Iterable[int], path: Path) -> None:
    """Raise DataError if one of the columns that are used has the name of another one."""
    times = Counter(names)
    for at in used:
        if times[names[at]] > 1:
            raise DataError(
                f"two columns are called `{names[at]}`" if names[at] else "two columns that are used have no name",
                file=str(path),
                line=1,
                hint="rename one: no two columns that are used may have the same name",
            )


def column_number(column: Column, names: Sequence[str], path: Path, key: str) -> int:
    """The number of a column.

    Args:
        names: the first line, as `plain` makes them.
        key: that names the column, or the file that must have it.

    Raises:
        DataError: if there is no such column.
    """
    found = place(column, names)
    if found is None:
        what = f"`{column}`" if isinstance(column, str) else f"number {column}, counted from 0"
        there = f"the first line is {', '.join(f'`{name}`' for name in names[:MOST_SHOWN])}"
        hint = did_you_mean(nearest(str(column), names), there)
        raise DataError(f"there is no column {what}", file=str(path), line=1, key=key, hint=hint)
    return found


def place(column: Column, names: Sequence[str]) -> int | None:
    """As `column_number`; None if there is no such column."""
    if isinstance(column, int):
        return column if column < len(names) else None
    return list(names).index(plain(column)) if plain(column) in names else None


def require_apart(labels: Sequence[int], samples: Sequence[int], names: Sequence[str], path: Path, key: str) -> None:
    """Raise DataError if a column of labels is also one of samples: a network would read the answer.

    Args:
        key: of the spec that names the columns of samples.
    """
    for at in samples:
        if at in labels:
            raise DataError(
                f"column `{names[at]}`, number {at} counted from 0, has the label, and samples contain it too",
                file=str(path),
                line=1,
                key=f"data.{key}",
                hint=f"leave it out of data.{key}",
            )


def damaged_record(message: str, path: Path, line: int, *, hint: str) -> DataError:
    """The error of one record of a file."""
    return DataError(message, file=str(path), line=line, hint=hint)
