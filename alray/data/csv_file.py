"""Reads the records of CSV files. An error names the line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from alray.core.errors import DataError, DataMissing
from alray.data.columns import damaged_record, plain
from alray.data.text_file import decoded_lines, equal_line_ends

_LONGEST_CELL = 2**31 - 1  # characters, of the smallest C long
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


@dataclass(frozen=True)
class CsvForm:
    """How the columns of a file are divided, and its decimal sign."""

    delimiter: str = ","
    decimal: str = "."

    def other_delimiter(self, cells: Sequence[str]) -> str | None:
        """A hint, if a line that should have several columns looks as if another character divided them."""
        for delimiter, name in _DELIMITERS.items():
            if delimiter != self.delimiter and any(delimiter in cell for cell in cells):
                shown = "\\t" if delimiter == "\t" else delimiter
                return f'if {name} divide the columns, set data.delimiter: "{shown}"'
        return None


COMMAS = CsvForm()
"""Columns that are divided by commas, and numbers with a point."""


def csv_records(path: Path, key: str, layout: str, form: CsvForm = COMMAS) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the number of its first line. Lines within a cell end with "\\n".

    Args:
        layout: of the file, for messages.

    Raises:
        DataError: if the file is missing or not CSV, or if its first line seems to be divided by another character than
            `form` says.
    """
    if not path.is_file():
        raise DataMissing("file not found", file=str(path), key=key, hint=f"give a CSV file in which {layout}")
    with path.open("rb") as file:
        reader = csv.reader(decoded_lines(file, path), strict=True, delimiter=form.delimiter)
        begun = False
        while True:
            line = reader.line_num + 1
            try:
                before = csv.field_size_limit(_LONGEST_CELL)  # that of all readers of the process
                try:
                    row = next(reader)
                finally:
                    csv.field_size_limit(before)
            except StopIteration:
                return
            except csv.Error as error:
                raise damaged_record(
                    f"this is not a CSV record ({error}); a quote may be open", path, line, hint=layout
                ) from error
            if not row:  # an empty line is not a record
                continue
            if not begun and len(row) == 1 and (hint := form.other_delimiter(row)):
                shown = row[0] if len(row[0]) <= 60 else row[0][:57] + "..."
                raise DataError(
                    f"the line has only one column, `{shown}`",
                    file=str(path),
                    line=line,
                    key="data.delimiter",
                    hint=hint,
                )
            begun = True
            yield line, [equal_line_ends(cell) for cell in row]


def csv_table(
    path: Path, key: str, layout: str, form: CsvForm = COMMAS
) -> tuple[tuple[str, ...], Iterator[tuple[int, list[str]]]]:
    """Return the cells of the first line, as `plain` makes them, and all records as `csv_records`, also the first one.

    Raises DataError as `csv_records`, or if there are no lines.
    """
    records = csv_records(path, key, layout, form)
    first = next(records, None)
    if first is None:
        raise DataError("the file has no lines", file=str(path), key=key, hint=f"give a file in which {layout}")
    return tuple(map(plain, first[1])), chain([first], records)


def of_width(
    records: Iterator[tuple[int, list[str]]], columns: int, path: Path, layout: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield these records. Raises DataError for the first one that has another number of columns."""
    for line, record in records:
        if len(record) != columns:
            raise damaged_record(f"expected {columns} columns, got {len(record)}", path, line, hint=layout)
        yield line, record
