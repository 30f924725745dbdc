"""Labels and targets that are numbers in the cells of a table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy
from torch import Tensor

from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.data.columns import damaged_record
from alray.models.task import make_task

LARGEST = float(numpy.finfo(numpy.float32).max)


def number(text: str, decimal: str = ".") -> float | None:
    """The value of a cell that float32 can hold; None if there is none.

    Args:
        decimal: the decimal sign, "." or ",".
    """
    if decimal == ",":
        if "." in text:
            return None
        text = text.replace(",", ".")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= LARGEST and "_" not in text else None  # Python reads 1_000 as a number


def not_a_number(value: str, column: str | int, path: Path, line: int) -> DataError:
    shown = value if len(value) <= 40 else value[:37] + "..."
    where = f"column `{column}`" if isinstance(column, str) else f"column {column}, counted from 0,"
    message = f"{where} has no value" if not shown.strip() else f"{where} has `{shown}`, which is not a finite number"
    hint = "correct the value, or list the columns of numbers in data.columns"
    if re.fullmatch(r"\s*[-+]?\d+,\d+\s*", value):
        hint = 'if the comma is the decimal sign, set data.decimal: ","'
    elif re.fullmatch(r"\s*[-+]?\d+\.\d+\s*", value):
        hint = 'if the point is the decimal sign, set data.decimal: "."'
    elif divided := re.search("[;\t|]", value):
        shown_as = "\\t" if divided[0] == "\t" else divided[0]
        hint = f'if this character divides the columns, set data.delimiter: "{shown_as}"'
    return damaged_record(message, path, line, hint=hint)


def numeric_cell(text: str, column: str | int, path: Path, line: int) -> float:
    """The number in a cell. Raises DataError, with the line, if there is none."""
    value = number(text)
    if value is None:
        raise not_a_number(text, column, path, line)
    return value


def require_labels(labels: Tensor, task: TaskSection, path: Path, lines: Sequence[int]) -> None:
    """Raise DataError, with the line, for the first row of labels [N, labels] that the task does not have. Those of a
    task of the user are checked when they are used."""
    if task.label == "own":
        return
    made = make_task(task, labels.shape[1])
    wrong = ~made.fits(labels)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        shown = ", ".join(f"{value:g}" for value in labels[row].tolist()[:10])
        raise damaged_record(f"the labels are {shown}", path, lines[row], hint=made.wants)
