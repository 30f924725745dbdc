"""Documents in CSV files: one column of classes and columns of text, with or without a header line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.class_labels import NUMBER, Labelled, class_numbers, known_classes, labels_of
from alray.data.columns import (
    Column,
    column_number,
    damaged_record,
    named_columns,
    place,
    plain,
    require_apart,
    require_distinct,
    without_name,
)
from alray.data.csv_file import COMMAS, CsvForm, csv_table, of_width
from alray.data.redivided import redivided
from alray.data.source import SplitName, TextSet, TextSource
from alray.parts.sources.text_csv.keys import TextCsv

_LAYOUT = "a line is a class and one or more columns of text (data.label_column, data.text_columns, data.header)"
_LABEL = "label"
"""The column that holds the classes where the spec does not say which, if the header has it."""


@dataclass(frozen=True)
class TextFileLayout:
    """Where a file has its header, its classes and its texts. None and "auto": see
    `alray.parts.sources.text_csv.keys.TextCsv`."""

    header: bool | Literal["auto"] = "auto"
    label_column: Column | None = None
    text_columns: tuple[Column, ...] | None = None
    form: CsvForm = COMMAS

    @property
    def by_name(self) -> bool:
        """Whether a column is given by its name, so that the file needs a header."""
        return any(isinstance(column, str) for column in (self.label_column, *(self.text_columns or ())))


@dataclass
class _Table(Labelled):
    """The documents of one file.

    Attributes:
        chosen: the numbers of the columns of text.
        header: whether the first line names the columns; None: not known yet.
        notes: what the user should read of the file, in sentences.
    """

    texts: list[str]
    chosen: tuple[int, ...]
    header: bool | None
    notes: tuple[str, ...] = ()


class TextCsvSource(TextSource):
    """A file for training and optionally one for the test.

    A document is its text columns, joined by a space. The classes are the names that the spec gives, or the lines of
    `classes.txt` next to the training file, or the different labels of the training file: numbers without gaps from 0
    or 1, or names in sorted order. If the classes have names, labels may be these names, or numbers from 0 or 1.
    AG News and DBpedia (Zhang et al. 2015) have no header, and count their classes from 1 in the first column.
    """

    def __init__(
        self,
        *,
        train: Path,
        test: Path | None,
        layout: TextFileLayout | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        """Read the training file. Raises DataError, with file and line, if a file is missing or damaged."""
        self._test = test
        self._layout = layout or TextFileLayout()
        names = known_classes(train, classes)
        self._table = _read(train, "data.train", self._layout)
        _settle_header(self._table, names)
        self._numbers = class_numbers(self._table, names)
        self.classes = self._numbers.names
        self._train = self._set_of(self._table)
        self.notes = self._table.notes + self._numbers.notes

    def open(self, split: SplitName) -> TextSet | None:
        if split == "train":
            return self._train
        return None if self._test is None else self._set_of(_read(self._test, "data.test", self._layout, self._table))

    def _set_of(self, table: _Table) -> TextSet:
        return TextSet(table.texts, labels_of(table, self._numbers))


# --- From a file to its documents ---


def _read(path: Path, key: str, layout: TextFileLayout, train: _Table | None = None) -> _Table:
    """Read a file.

    Args:
        train: the training file, whose columns a test file has: by name, if both have names.
    """
    names, records = csv_table(path, key, _LAYOUT, layout.form)
    header = _header_from(names, layout, train)
    by_position = train is not None and not (header and train.header)
    if train is None:
        label, texts = _column_numbers(names, layout, header, path)
    elif by_position:
        label, texts = train.label, train.chosen
    else:
        label, *others = (column_number(train.columns[at], names, path, key) for at in (train.label, *train.chosen))
        texts = tuple(others)
    notes: tuple[str, ...] = ()
    if header:
        if train is None and layout.text_columns is None:
            notes = without_name(names, [label], path, "text_columns")
            texts = tuple(at for at in named_columns(names) if at in texts)
        require_distinct(names, (label, *texts), path)
    wide = len(train.columns if by_position and train is not None else names)
    table = _Table(path, names, label, [], [], [], texts, header, notes)
    for line, row in of_width(records, wide, path, _LAYOUT):
        if wide < 2:
            raise damaged_record("expected at least 2 columns, got 1", path, line, hint=_LAYOUT)
        table.lines.append(line)
        table.labels.append(plain(row[label]))
        table.texts.append(" ".join(row[number] for number in texts))
    if header:
        _drop_first(table)
    return table


def _header_from(names: tuple[str, ...], layout: TextFileLayout, train: _Table | None) -> bool | None:
    """Whether the first line of a file is a header; None if that depends on the other lines."""
    if layout.header != "auto":
        return layout.header
    if layout.by_name:
        return True
    if train is not None:
        chosen = (train.columns[at] for at in (train.label, *train.chosen))
        return bool(train.header) and all(place(column, names) is not None for column in chosen)
    return True if layout.label_column is None and _LABEL in names else None


def _column_numbers(
    names: tuple[str, ...], layout: TextFileLayout, header: bool | None, path: Path
) -> tuple[int, tuple[int, ...]]:
    """Return the numbers of the column of classes and of the columns of text of a training file."""
    if layout.label_column is not None:
        label = column_number(layout.label_column, names, path, "data.label_column")
    else:
        label = names.index(_LABEL) if header and _LABEL in names else 0
    if layout.text_columns is None:
        return label, tuple(number for number in range(len(names)) if number != label)
    texts = tuple(column_number(column, names, path, "data.text_columns") for column in layout.text_columns)
    require_apart((label,), texts, names, path, "text_columns")
    return label, texts


def _settle_header(table: _Table, names: tuple[str, ...] | None) -> None:
    """Decide `header: auto` where no column is given by name: the first line is a header if its label is no class.

    A class is a number, one of the known names, or what another line has too.
    """
    if table.header is None:
        label = table.labels[0]
        known = table.labels[1:] if names is None else names
        table.header = not NUMBER.fullmatch(label) and label not in known
        if table.header:
            _drop_first(table)
    if not table.labels:
        raise DataError("the file has no documents", file=str(table.path), key="data.train", hint=_LAYOUT)


def _drop_first(table: _Table) -> None:
    for column in (table.lines, table.labels, table.texts):
        del column[0]


def opened(section: TextCsv, task: TaskSection) -> TextSource:
    """The source of a spec's section, the same for all tasks. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    source = TextCsvSource(
        train=section.train,
        test=section.test,
        layout=TextFileLayout(section.header, section.label_column, section.text_columns, CsvForm(section.delimiter)),
        classes=section.classes,
    )
    return redivided(source, section.test_fraction)
