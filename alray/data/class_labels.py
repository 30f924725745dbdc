"""The classes of a table: from the values of its column of labels to numbers from 0."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alray.core.errors import DataError
from alray.data.text_file import read_text

NUMBER = re.compile(r"-?[0-9]{1,18}")
"""A label that is a number, if most labels are."""
MOST_SHOWN = 10
"""Names of columns or classes in a message."""
_FEW_CLASSES = 50
"""With more classes than this, most of which have one record, the column is not one of classes."""


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


def counts_columns(names: Sequence[str]) -> bool:
    """Whether a first line is 0, 1, 2, ...: pandas writes it where columns have no names."""
    return [*names] == [str(at) for at in range(len(names))]


@dataclass
class Labelled:
    """The labels of one file.

    Attributes:
        columns: its first line.
        label: number of the column of classes.
        lines: where each record begins, from 1.
    """

    path: Path
    columns: tuple[str, ...]
    label: int
    lines: list[int]
    labels: list[str]


@dataclass(frozen=True)
class ClassNumbers:
    """The number of every class.

    Attributes:
        first: the number in the files of the first class; None if the files have names.
    """

    names: tuple[str, ...]
    first: int | None

    @property
    def hint(self) -> str:
        return "correct the line, or list all classes in data.classes"

    def of(self, label: str) -> int | None:
        """The number of a label, or None if it is no class."""
        if self.first is None:
            return self.names.index(label) if label in self.names else None
        if not NUMBER.fullmatch(label):
            return None
        number = int(label) - self.first
        return number if 0 <= number < len(self.names) else None

    def unknown(self, label: str) -> str:
        shown = label if len(label) <= 40 else label[:37] + "..."
        if self.first is None:
            names = ", ".join(self.names[:MOST_SHOWN]) + (", ..." if len(self.names) > MOST_SHOWN else "")
            return f"`{shown}` is not a class ({names})" if label else "the class is empty"
        if not NUMBER.fullmatch(label):
            return f"`{shown}` is not the number of a class"
        return f"expected a class of {self.first} to {self.first + len(self.names) - 1}, got {label}"


def class_numbers(table: Labelled, names: tuple[str, ...] | None) -> ClassNumbers:
    """The classes of a training file.

    Args:
        names: those that are known.

    Raises:
        DataError: if labels can be no classes.
    """
    names = names and tuple(map(plain, names))
    labels = set(table.labels)
    if names is not None and not labels.isdisjoint(names):
        return ClassNumbers(names, None)
    numbers = {int(label) for label in labels if NUMBER.fullmatch(label)}
    counted = sum(NUMBER.fullmatch(label) is not None for label in table.labels)
    if 2 * counted >= len(table.labels):  # else a class that is called `90`, say, is a name among names
        first = 0 if 0 in numbers else 1
        if names is None:
            _require_no_gaps(table, numbers, first)
            names = tuple(str(number) for number in range(first, max(numbers) + 1))
        return ClassNumbers(names, first)
    if names is None:
        _require_classes(table, len(labels))
        names = tuple(sorted(labels - {""}))
    return ClassNumbers(names, None)


def _require_no_gaps(table: Labelled, numbers: set[int], first: int) -> None:
    """A class without documents may mean that a number is damaged."""
    lowest, largest = min(numbers), max(numbers)
    missing = next((number for number in range(first, largest) if number not in numbers), None)
    if lowest >= first and missing is None:
        return
    wrong = lowest if lowest < first else largest
    message = f"expected a class of {first} or more, got {lowest}"
    if missing is not None:
        message = f"class {missing} has no documents, but class {largest} has"
    written = {label for label in set(table.labels) if NUMBER.fullmatch(label) and int(label) == wrong}
    raise damaged_record(
        message,
        table.path,
        next(line for line, label in zip(table.lines, table.labels, strict=True) if label in written),
        hint="number the classes from 0 or 1 without gaps, or list all of them in data.classes",
    )


def _require_classes(table: Labelled, different: int) -> None:
    if different > _FEW_CLASSES and 2 * different > len(table.labels):
        shown = ", ".join(f"`{name}`" for name in table.columns[:MOST_SHOWN])
        raise DataError(
            f"column {table.label}, counted from 0, has {different:,} different values in {len(table.labels):,} lines: "
            "these are not classes",
            file=str(table.path),
            key="data.label_column",
            hint=f"name the column of the classes; the first line is {shown}",
        )


def labels_of(table: Labelled, numbers: ClassNumbers) -> list[int]:
    """The number of the class of each record. Raises DataError, with the line, for a label that is no class."""
    found = {label: numbers.of(label) for label in set(table.labels)}
    for line, label in zip(table.lines, table.labels, strict=True):
        if found[label] is None:
            raise damaged_record(numbers.unknown(label), table.path, line, hint=numbers.hint)
    return [number for label in table.labels if (number := found[label]) is not None]


def listed_classes(path: Path) -> tuple[str, ...]:
    names = tuple(name for line in read_text(path).splitlines() if (name := plain(line)))
    if not names or len(set(names)) != len(names):
        raise DataError(
            "the file has no class names" if not names else "two classes have the same name",
            file=str(path),
            hint="write one name on each line, or remove the file to name the classes by their labels",
        )
    return names


def column_number(column: str | int, names: Sequence[str], path: Path, key: str) -> int:
    """The number of a column that a spec names.

    Args:
        names: the first line, as `plain` makes them.

    Raises:
        DataError: if there is no such column.
    """
    if isinstance(column, int) and column < len(names):
        return column
    if isinstance(column, str) and plain(column) in names:
        return list(names).index(plain(column))
    what = f"`{column}`" if isinstance(column, str) else f"number {column}, counted from 0"
    shown = ", ".join(f"`{name}`" for name in names[:MOST_SHOWN])
    raise DataError(
        f"there is no column {what}", file=str(path), line=1, key=f"data.{key}", hint=f"the first line is {shown}"
    )


def damaged_record(message: str, path: Path, line: int, *, hint: str) -> DataError:
    """The error of one record of a file."""
    return DataError(message, file=str(path), line=line, hint=hint)
