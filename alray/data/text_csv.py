"""Documents in CSV files: one column of classes and columns of text, with or without a header line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from alray.data.source import SplitName, TextSet, TextSource
from alray.data.text_file import decoded_lines, read_text
from alray.errors import DataError, DataMissing

Column = str | int
"""A column by its name in the header, or by its number, counted from 0."""

_LAYOUT = "a line is a class and one or more columns of text (data.label_column, data.text_columns, data.header)"
_LABEL = "label"
"""The column that holds the classes where the spec does not say which, if the header has it."""
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_MOST_SHOWN = 10
_FEW_CLASSES = 50
"""With more classes than this, most of which have one document, the column is not one of classes."""


@dataclass(frozen=True)
class Layout:
    """Where a file has its header, its classes and its texts. None and "auto": see `alray.spec.data.TextCsv`."""

    header: bool | Literal["auto"] = "auto"
    label_column: Column | None = None
    text_columns: tuple[Column, ...] | None = None

    @property
    def by_name(self) -> bool:
        """Whether a column is given by its name, so that the file needs a header."""
        return any(isinstance(column, str) for column in (self.label_column, *(self.text_columns or ())))


@dataclass
class _Table:
    """The documents of one file. lines: where each begins, from 1. header: the first line, if it names columns."""

    path: Path
    columns: tuple[str, ...]  # the first line
    label: int
    header: bool | None  # None: not known yet
    lines: list[int]
    labels: list[str]
    texts: list[str]


class TextCsv(TextSource):
    """A file for training and optionally one for the test.

    A document is its text columns, joined by a space. The classes are the names that the spec gives, or the lines of
    `classes.txt` next to the training file, or the different labels of the training file: numbers without gaps from 0
    or 1, or names in sorted order. If the classes have names, labels may be these names, or numbers from 0 or 1.
    AG News and DBpedia (Zhang et al. 2015) have no header, and count their classes from 1 in the first column.
    """

    def __init__(
        self, *, train: Path, test: Path | None, layout: Layout | None = None, classes: Sequence[str] | None = None
    ) -> None:
        """Read the training file. Raises DataError, with file and line, if a file is missing or damaged."""
        self._test = test
        self._layout = layout or Layout()
        listed = train.parent / "classes.txt"
        names = tuple(classes) if classes else _names(listed) if listed.is_file() else None
        self._table = _read(train, "data.train", self._layout)
        _settle_header(self._table, names)
        self._numbers = _numbers(self._table, names)
        self._train = self._set_of(self._table)

    @property
    def classes(self) -> tuple[str, ...]:
        return self._numbers.names

    def open(self, split: SplitName) -> TextSet | None:
        if split == "train":
            return self._train
        return None if self._test is None else self._set_of(_read(self._test, "data.test", self._layout, self._table))

    def _set_of(self, table: _Table) -> TextSet:
        numbers = {label: self._numbers.of(label) for label in set(table.labels)}
        for line, label in zip(table.lines, table.labels, strict=True):
            if numbers[label] is None:
                raise _damaged(self._numbers.unknown(label), table.path, line, hint=self._numbers.hint)
        return TextSet(table.texts, [number for label in table.labels if (number := numbers[label]) is not None])


# --- From a file to its documents ---


def _read(path: Path, key: str, layout: Layout, train: _Table | None = None) -> _Table:
    """Read a file. train: the training file, whose columns a test file has."""
    rows = _rows(path, key)
    first = next(rows, None)
    if first is None:
        raise DataError("the file has no lines", file=str(path), key=key, hint=f"give a file in which {_LAYOUT}")
    names = tuple(cell.strip() for cell in first[1])
    header = _header_from(names, layout, train)
    label, texts = _column_numbers(names, layout, header, path, train)
    wide = len(train.columns) if train is not None and not layout.by_name else len(names)
    table = _Table(path, names, label, header, [], [], [])
    for line, row in chain([first], rows):
        if len(row) < 2 or len(row) != wide:
            expected = "at least 2" if wide < 2 else str(wide)
            raise _damaged(f"expected {expected} columns, got {len(row)}", path, line)
        table.lines.append(line)
        table.labels.append(row[label].strip())
        table.texts.append(" ".join(row[number] for number in texts))
    if header:
        _drop_first(table)
    return table


def _header_from(names: tuple[str, ...], layout: Layout, train: _Table | None) -> bool | None:
    """Whether the first line of a file is a header; None if that depends on the other lines."""
    if layout.header != "auto":
        return layout.header
    if layout.by_name:
        return True
    if train is not None:
        return bool(train.header) and names == train.columns
    return True if layout.label_column is None and _LABEL in map(str.lower, names) else None


def _column_numbers(
    names: tuple[str, ...], layout: Layout, header: bool | None, path: Path, train: _Table | None
) -> tuple[int, tuple[int, ...]]:
    """Return the numbers of the column of classes and of the columns of text."""

    def number_of(column: Column, key: str) -> int:
        if isinstance(column, int) and column < len(names):
            return column
        if column in names:
            return names.index(column)
        what = f"`{column}`" if isinstance(column, str) else f"number {column}, counted from 0"
        shown = ", ".join(f"`{name}`" for name in names[:_MOST_SHOWN])
        raise DataError(
            f"there is no column {what}", file=str(path), line=1, key=f"data.{key}", hint=f"the first line is {shown}"
        )

    if layout.label_column is not None:
        label = number_of(layout.label_column, "label_column")
    elif train is not None and not layout.by_name:
        label = train.label
    else:
        lower = [name.lower() for name in names]
        label = lower.index(_LABEL) if header and _LABEL in lower else 0
    if layout.text_columns is None:
        return label, tuple(number for number in range(len(names)) if number != label)
    return label, tuple(number_of(column, "text_columns") for column in layout.text_columns)


def _settle_header(table: _Table, names: tuple[str, ...] | None) -> None:
    """Decide `header: auto` where no column is given by name: the first line is a header if its label is no class.

    A class is a number, one of the known names, or what another line has too.
    """
    if table.header is None:
        label = table.labels[0]
        known = table.labels[1:] if names is None else names
        table.header = not _NUMBER.fullmatch(label) and label not in known
        if table.header:
            _drop_first(table)
    if not table.labels:
        raise DataError("the file has no documents", file=str(table.path), key="data.train", hint=_LAYOUT)


def _drop_first(table: _Table) -> None:
    for column in (table.lines, table.labels, table.texts):
        del column[0]


# --- From labels to classes ---


@dataclass(frozen=True)
class _Numbers:
    """The number of every class. first: the number in the files of the first class; None if the files have names."""

    names: tuple[str, ...]
    first: int | None

    @property
    def hint(self) -> str:
        return "correct the line, or list all classes in data.classes"

    def of(self, label: str) -> int | None:
        """The number of a label, or None if it is no class."""
        if self.first is None:
            return self.names.index(label) if label in self.names else None
        if not _NUMBER.fullmatch(label):
            return None
        number = int(label) - self.first
        return number if 0 <= number < len(self.names) else None

    def unknown(self, label: str) -> str:
        shown = label if len(label) <= 40 else label[:37] + "..."
        if self.first is None:
            names = ", ".join(self.names[:_MOST_SHOWN]) + (", ..." if len(self.names) > _MOST_SHOWN else "")
            return f"`{shown}` is not a class ({names})" if label else "the class is empty"
        if not _NUMBER.fullmatch(label):
            return f"`{shown}` is not the number of a class"
        return f"expected a class of {self.first} to {self.first + len(self.names) - 1}, got {label}"


def _numbers(table: _Table, names: tuple[str, ...] | None) -> _Numbers:
    """The classes of a training file. names: those that are known. Raises DataError if labels can be no classes."""
    labels = set(table.labels)
    if names is not None and not labels.isdisjoint(names):
        return _Numbers(names, None)
    numbers = {int(label) for label in labels if _NUMBER.fullmatch(label)}
    counted = sum(_NUMBER.fullmatch(label) is not None for label in table.labels)
    if 2 * counted >= len(table.labels):  # else a class that is called `90`, say, is a name among names
        first = 0 if 0 in numbers else 1
        if names is None:
            _require_no_gaps(table, numbers, first)
            names = tuple(str(number) for number in range(first, max(numbers) + 1))
        return _Numbers(names, first)
    if names is None:
        _require_classes(table, len(labels))
        names = tuple(sorted(labels - {""}))
    return _Numbers(names, None)


def _require_no_gaps(table: _Table, numbers: set[int], first: int) -> None:
    """A class without documents may mean that a number is damaged."""
    lowest, largest = min(numbers), max(numbers)
    missing = next((number for number in range(first, largest) if number not in numbers), None)
    if lowest >= first and missing is None:
        return
    wrong = lowest if lowest < first else largest
    message = f"expected a class of {first} or more, got {lowest}"
    if missing is not None:
        message = f"class {missing} has no documents, but class {largest} has"
    written = {label for label in set(table.labels) if _NUMBER.fullmatch(label) and int(label) == wrong}
    raise _damaged(
        message,
        table.path,
        next(line for line, label in zip(table.lines, table.labels, strict=True) if label in written),
        hint="number the classes from 0 or 1 without gaps, or list all of them in data.classes",
    )


def _require_classes(table: _Table, different: int) -> None:
    if different > _FEW_CLASSES and 2 * different > len(table.labels):
        shown = ", ".join(f"`{name}`" for name in table.columns[:_MOST_SHOWN])
        raise DataError(
            f"column {table.label}, counted from 0, has {different:,} different values in {len(table.labels):,} lines: "
            "these are not classes",
            file=str(table.path),
            key="data.label_column",
            hint=f"name the column of the classes; the first line is {shown}",
        )


def _rows(path: Path, key: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the number of its first line. Raises DataError if the file is missing or not CSV."""
    if not path.is_file():
        raise DataMissing("file not found", file=str(path), key=key, hint=f"give a CSV file in which {_LAYOUT}")
    with path.open("rb") as file:
        reader = csv.reader(decoded_lines(file, path), strict=True)
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise _damaged(f"this is not a CSV record ({error}); a quote may be open", path, line) from error
            if row:  # an empty line is not a record
                yield line, row


def _names(path: Path) -> tuple[str, ...]:
    names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    if not names or len(set(names)) != len(names):
        raise DataError(
            "the file has no class names" if not names else "two classes have the same name",
            file=str(path),
            hint="write one name on each line, or remove the file to name the classes by their labels",
        )
    return names


def _damaged(message: str, path: Path, line: int, *, hint: str = _LAYOUT) -> DataError:
    return DataError(message, file=str(path), line=line, hint=hint)
