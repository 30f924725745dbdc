"""Reads the records of CSV files, and the numbers in them. An error names the line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alray.core.errors import DataError, DataMissing
from alray.data.class_labels import damaged_record
from alray.data.text_file import decoded_lines, equal_line_ends

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
                row = next(reader)
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
