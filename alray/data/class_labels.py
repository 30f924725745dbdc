"""The classes of a table: from the values of its column of labels to numbers from 0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alray.core.errors import DataError
from alray.data.columns import MOST_SHOWN, damaged_record, plain
from alray.data.numeric_labels import number
from alray.data.text_file import read_text

NUMBER = re.compile(r"-?[0-9]{1,18}")
"""A label that is a number, if most labels are."""
_FEW_CLASSES = 50
"""With more classes than this, most of which have one record, the column is not one of classes."""


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
        notes: what the user should read of them, in sentences.
    """

    names: tuple[str, ...]
    first: int | None
    notes: tuple[str, ...] = ()

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
    _require_one_way(table)
    numbers = {int(label) for label in labels if NUMBER.fullmatch(label)}
    counted = sum(NUMBER.fullmatch(label) is not None for label in table.labels)
    if 2 * counted >= len(table.labels):  # else a class that is called `90`, say, is a name among names
        first = 0 if 0 in numbers else 1
        if names is None:
            _require_no_gaps(table, numbers, first)
            return ClassNumbers(tuple(str(number) for number in range(first, max(numbers) + 1)), first)
        return ClassNumbers(names, first, _either_count(table, numbers, names))
    if names is None:
        _require_classes(table, len(labels))
        names = tuple(sorted(labels - {""}))
    return ClassNumbers(names, None)


def _either_count(table: Labelled, numbers: set[int], names: tuple[str, ...]) -> tuple[str, ...]:
    """A sentence where numbers may be counted from 0 as well as from 1, which are other names; else none."""
    if 0 in numbers or max(numbers) >= len(names):
        return ()
    return (
        f"{table.path.name}: the classes are numbers, of which neither 0 nor {len(names)} is there: 1 is taken for "
        f"`{names[0]}`, the first of {len(names)} names; if they are counted from 0, write the names into the file",
    )


def _require_one_way(table: Labelled) -> None:
    """A number that is written in two ways, such as `1` and `01`, may be one class or two."""
    first: dict[float, str] = {}
    for line, label in zip(table.lines, table.labels, strict=True):
        value = number(label)
        if value is not None and first.setdefault(value, label) != label:
            raise damaged_record(
                f"`{label}` and `{first[value]}` are the same number, written in two ways",
                table.path,
                line,
                hint="write a class in one way; or, if these are two classes, list all classes in data.classes",
            )


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


def known_classes(train: Path, classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """The names of the classes that the spec gives, or else those on the lines of `classes.txt` next to the training
    file; None if there is no such file. Raises DataError if it has none, or one of them twice."""
    path = train.parent / "classes.txt"
    if classes or not path.is_file():
        return tuple(classes) if classes else None
    names = tuple(name for line in read_text(path).splitlines() if (name := plain(line)))
    if not names or len(set(names)) != len(names):
        raise DataError(
            "the file has no class names" if not names else "two classes have the same name",
            file=str(path),
            hint="write one name on each line, or remove the file to name the classes by their labels",
        )
    return names
