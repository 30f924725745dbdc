"""Reads the records of CSV files. An error names the line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from alray.data.class_labels import damaged_record
from alray.data.text_file import decoded_lines
from alray.errors import DataMissing


def csv_records(path: Path, key: str, layout: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the number of its first line.

    Args:
        layout: of the file, for messages.

    Raises:
        DataError: if the file is missing or not CSV.
    """
    if not path.is_file():
        raise DataMissing("file not found", file=str(path), key=key, hint=f"give a CSV file in which {layout}")
    with path.open("rb") as file:
        reader = csv.reader(decoded_lines(file, path), strict=True)
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
            if row:  # an empty line is not a record
                yield line, row
