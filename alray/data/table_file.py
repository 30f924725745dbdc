"""Files of tables of numbers, CSV or Parquet: numeric columns, and one column of classes or columns of labels."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from alray.core.errors import DataError, DataMissing
from alray.data.class_labels import Labelled
from alray.data.columns import (
    MOST_SHOWN,
    Column,
    column_number,
    damaged_record,
    named_columns,
    plain,
    require_apart,
    require_distinct,
    without_name,
)
from alray.data.csv_file import COMMAS, CsvForm, csv_table, of_width
from alray.data.numeric_labels import LARGEST, not_a_number, number

_LAYOUT = "a line is numbers and a class (data.label_column, data.columns, data.header)"
_LABEL = "label"
"""The column that holds the classes where the spec does not say which."""
_LARGEST_BYTES = 16 * 2**30
"""The most bytes that the numbers of one file may take in memory. A small Parquet file can hold far more."""
_INPUT = "INPUT"
"""The argument of `alray predict`, as messages name it."""


@dataclass(frozen=True)
class TableLayout:
    """Where a file has its header, its classes and its numbers. None and "auto": see
    `alray.parts.sources.table.keys.Table`.

    Attributes:
        targets: the columns of labels or targets that are numbers, (): that of `label_column`; None: labels are
            classes.
        labelled: whether there are labels; else there may be no column of them.
        form: of a CSV file.
        by_spec: whether the spec names the columns; else they are those of the training file.
    """

    header: bool | Literal["auto"] = "auto"
    label_column: Column | None = None
    columns: tuple[Column, ...] | None = None
    targets: tuple[Column, ...] | None = None
    labelled: bool = True
    form: CsvForm = COMMAS
    by_spec: bool = True

    def chosen(self, names: Sequence[str], path: Path, key: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The numbers of the columns of labels, one for classes and none if they are not `labelled`, and those of the
        columns of numbers.

        Args:
            names: the first line.
            key: of the file.
        """

        def at(column: Column, named_by: str) -> int:
            return column_number(column, names, path, f"data.{named_by}" if self.by_spec else key)

        if not self.labelled:
            label: tuple[int, ...] = ()
        elif self.targets:
            label = tuple(at(each, "label_columns") for each in self.targets)
        elif self.label_column is not None:
            label = (at(self.label_column, "label_column"),)
        elif _LABEL in names:
            label = (list(names).index(_LABEL),)
        else:
            shown = ", ".join(f"`{name}`" for name in names[:MOST_SHOWN])
            raise DataError(
                f"there is no column `{_LABEL}`, so the spec has to say which one has the classes",
                file=str(path),
                key="data.label_column",
                hint=self.form.other_delimiter(names)
                or f"give its name, or its number, counted from 0; the first line is {shown}",
            )
        if self.columns is None:
            numbers = tuple(number for number in range(len(names)) if number not in label)
        else:
            numbers = tuple(at(column, "columns") for column in self.columns)
        if not numbers:
            raise DataError("there is no column of numbers", file=str(path), key="data.columns", hint=_LAYOUT)
        require_apart(label, numbers, names, path, "columns")
        return label, numbers

    def named(
        self, names: Sequence[str], path: Path, label: tuple[int, ...], numbers: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        """Columns that `chosen` gave, where the file names its columns: those of numbers that nobody asked for have a
        name. Also a note about the others."""
        notes: tuple[str, ...] = ()
        if self.columns is None:
            notes = without_name(names, label, path, "columns")
            numbers = tuple(at for at in named_columns(names) if at in numbers)
            if not numbers:
                raise DataError("no column of numbers has a name", file=str(path), key="data.columns", hint=_LAYOUT)
        require_distinct(names, (*label, *numbers), path)
        return label, numbers, notes

    def of(self, train: Rows) -> TableLayout:
        """The layout of another file, which has the same columns as the training file: by name, if they have names."""
        named = train.header
        labels, columns = (
            tuple(train.columns[at] if named else at for at in numbers) for numbers in (train.targets, train.chosen)
        )
        header = self.header if named or self.header != "auto" else False
        targets = None if self.targets is None else labels
        return TableLayout(header, labels[0], columns, targets, form=self.form, by_spec=False)


@dataclass
class Rows(Labelled):
    """The rows of one file.

    Attributes:
        values: [rows, columns] float64; with numeric labels, those are the last columns.
        chosen: the numbers of the columns without labels.
        targets: those of the labels.
        header: whether the columns have names.
        notes: what the user should read of the file, in sentences.
    """

    values: NDArray[numpy.float64]
    chosen: tuple[int, ...]
    targets: tuple[int, ...]
    header: bool
    notes: tuple[str, ...] = ()

    @property
    def samples(self) -> NDArray[numpy.float64]:
        return self.values[:, : len(self.chosen)]

    @property
    def numeric_labels(self) -> NDArray[numpy.float64]:
        return self.values[:, len(self.chosen) :]

    @property
    def target_names(self) -> tuple[str, ...]:
        return tuple(self.columns[at] if self.header else f"target_{place}" for place, at in enumerate(self.targets))


@dataclass(frozen=True)
class RowReader:
    """Reads files of samples to predict, whose columns of numbers are those of the training file.

    Attributes:
        columns: their names in order; without names their numbers in the training file, counted from 0.
        delimiter, decimal: see `CsvForm`.
        wide: whether rows stay float64 until they are standardised (`type_of`).
    """

    columns: Annotated[tuple[Column, ...], Field(min_length=1)]
    delimiter: str
    decimal: str
    wide: bool

    @classmethod
    def of(cls, train: Rows, form: CsvForm, *, wide: bool) -> RowReader:
        """For the columns of a training file."""
        columns = tuple(train.columns[at] if train.header else at for at in train.chosen)
        return cls(columns, form.delimiter, form.decimal, wide)

    def read(self, path: Path) -> Iterator[tuple[str, Tensor]]:
        """The rows of a table, with or without labels. A name has the number of the line.

        Raises DataError, with file and line, if the file is missing or damaged.
        """
        rows = read_rows(path, _INPUT, self._layout(path))
        values = rows.samples.astype(numpy.float64 if self.wide else numpy.float32)
        for line, row in zip(rows.lines, torch.from_numpy(values), strict=True):
            yield f"{path}:{line}", row

    def _layout(self, path: Path) -> TableLayout:
        """Columns without names have the positions of the training file; where the file has as many as there are
        numbers, they are these."""
        columns, named = self.columns, isinstance(self.columns[0], str)
        form = CsvForm(self.delimiter, self.decimal)
        if not named and path.suffix != ".parquet":
            first, _ = csv_table(path, _INPUT, _LAYOUT, form)
            if len(first) == len(columns):
                columns = tuple(range(len(columns)))
        return TableLayout(named, None, columns, (), labelled=False, form=form, by_spec=False)


def read_rows(path: Path, key: str, layout: TableLayout) -> Rows:
    rows = _read_parquet(path, key, layout) if path.suffix == ".parquet" else _read_csv(path, key, layout)
    if not rows.lines:
        raise DataError("the file has no rows", file=str(path), key=key, hint=_LAYOUT)
    return rows


# --- CSV ---


def _read_csv(path: Path, key: str, layout: TableLayout) -> Rows:
    names, records = csv_table(path, key, _LAYOUT, layout.form)
    decimal = layout.form.decimal
    targets, chosen = layout.chosen(names, path, key)
    header: bool | Literal["auto"] = layout.header
    notes: tuple[str, ...] = ()
    if header == "auto":
        columns = (layout.label_column, *(layout.columns or ()), *(layout.targets or ()))
        by_name = any(isinstance(column, str) for column in columns)
        by_label = layout.label_column is None and not layout.targets
        numeric = chosen if layout.targets is None else (*chosen, *targets)
        of_pandas = list(names) == [str(at) for at in range(len(names))]  # it gives such names to columns without any
        header = by_name or by_label or of_pandas or any(number(names[at], decimal) is None for at in numeric)
    if header:
        targets, chosen, notes = layout.named(names, path, targets, chosen)
        next(records)
    numeric = chosen if layout.targets is None else (*chosen, *targets)
    label = targets[0] if targets else 0
    values = array("d")
    lines: list[int] = []
    labels: list[str] = []
    seen: dict[str, str] = {}
    for line, record in of_width(records, len(names), path, _LAYOUT):
        for at in numeric:
            value = number(record[at], decimal)
            if value is None:
                raise not_a_number(record[at], names[at] if header else at, path, line)
            values.append(value)
        lines.append(line)
        if layout.targets is None:
            written = record[label]
            if written not in seen:
                seen[written] = plain(written)
            labels.append(seen[written])  # one text for each class
        _require_room(len(values), path, key)
    matrix = numpy.array(values).reshape(-1, len(numeric))
    return Rows(path, names, label, lines, labels, matrix, chosen, targets, header, notes)


def _require_room(values: int, path: Path, key: str) -> None:
    if values * 8 > _LARGEST_BYTES:
        raise DataError(
            f"its numbers take more than {_LARGEST_BYTES // 2**30} GiB, but they are kept in memory",
            file=str(path),
            key=key,
            hint="choose fewer columns with data.columns, or write your own source",
        )


# --- Parquet ---


def _read_parquet(path: Path, key: str, layout: TableLayout) -> Rows:
    """Lines are rows here, counted from 1."""
    import pyarrow
    from pyarrow import parquet

    if not path.is_file():
        raise DataMissing("file not found", file=str(path), key=key, hint=f"give a Parquet file in which {_LAYOUT}")
    try:
        with parquet.ParquetFile(path) as file:
            given = file.schema_arrow.names
            names = tuple(map(plain, given))
            targets, chosen, notes = layout.named(names, path, *layout.chosen(names, path, key))
            of_classes = layout.targets is None
            numeric = chosen if of_classes else (*chosen, *targets)
            label = targets[0] if targets else 0
            _require_types(file.schema_arrow, label if of_classes else None, numeric, path)
            _require_room(file.metadata.num_rows * len(numeric), path, key)
            table = file.read(columns=list(dict.fromkeys(given[at] for at in (*numeric, *targets))))
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system refused to read it
        message = " ".join(str(error).split())
        raise DataError(
            f"damaged Parquet file: {message}", file=str(path), key=key, hint="give a complete Parquet file"
        ) from error
    values = _numbers(table, [given[at] for at in numeric], path)
    labels = _texts(table.column(given[label]), path) if of_classes else []
    lines = list(range(1, table.num_rows + 1))
    return Rows(path, names, label, lines, labels, values, chosen, targets, True, notes)


def _require_types(schema: Any, label: int | None, chosen: Sequence[int], path: Path) -> None:
    """
    Args:
        label: the column of classes; None: there is none.
    """
    from pyarrow import types

    def refuse(at: int, wanted: str, key: str) -> DataError:
        message = f"column `{schema.names[at]}` is of type {schema.types[at]}, not {wanted}"
        return DataError(message, file=str(path), key=key, hint=f"choose other columns with {key}")

    for name in schema.names:
        if schema.names.count(name) > 1:
            raise DataError(f"two columns are called `{name}`", file=str(path), hint="rename one of them")
    for at in chosen:
        kind = schema.types[at]
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise refuse(at, "numbers", "data.columns")
    if label is None:
        return
    kind = schema.types[label]
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if not (types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_boolean(kind)):
        raise refuse(label, "classes", "data.label_column")


def _numbers(table: Any, names: Sequence[str], path: Path) -> NDArray[numpy.float64]:
    values = numpy.empty((table.num_rows, len(names)), dtype=numpy.float64)
    for place, name in enumerate(names):
        column = table.column(name)
        values[:, place] = column.to_numpy()
        wrong = ~(numpy.abs(values[:, place]) <= LARGEST)
        if wrong.any():
            row = int(wrong.argmax())
            value = column[row].as_py()
            raise not_a_number("" if value is None else str(value), name, path, row + 1)
    return values


def _texts(column: Any, path: Path) -> list[str]:
    found = column.to_pylist()
    for row, value in enumerate(found):
        if value is None:
            raise damaged_record("the class is empty", path, row + 1, hint="correct it, or remove the row")
    return [plain(str(value)) for value in found]
