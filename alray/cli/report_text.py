"""What `alray report` and `alray compare` print in the terminal."""

from __future__ import annotations

from typing import TextIO

import rich.table
from rich.console import Console
from rich.text import Text

from alray.report.compare import Comparison
from alray.report.compare_tables import accuracy_table, bag_table, cost_table, depth_table
from alray.report.single_step import COLUMNS, HEAD, SingleStep, cells
from alray.report.table import Table, blocks
from alray.report.text import NOT_MEASURED

_NARROW = 80
"""Columns of a file or a pipe."""


def print_single_step(step: SingleStep, *, stream: TextIO) -> None:
    """Print the predicted and the measured row of each stage and of the step, and what the columns mean."""
    console = Console(file=stream, highlight=False)
    made = rich.table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))  # fits into 80 columns
    made.add_column("ms", no_wrap=True)
    for heading in HEAD:
        made.add_column(heading.replace(" ", "\n"), justify="right")
    for row in step.rows:
        made.add_row(row.label)
        made.add_row(" predicted", *cells(row.predicted))
        made.add_row(" measured", *cells(row.measured))
    console.print(made)
    console.print()
    meanings = rich.table.Table.grid(padding=(0, 2, 0, 0))
    meanings.add_column(no_wrap=True)
    for heading, meaning in COLUMNS.items():
        meanings.add_row(heading, Text(meaning.replace("`", "")))
    console.print(meanings)


def print_comparison(comparison: Comparison, *, stream: TextIO) -> None:
    """Print accuracies, accuracies per depth and costs, one row for each group of runs, then the notes on them.

    The groups are numbered, so that a row needs no long label. A table that is too wide is cut between its columns.
    """
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _NARROW)
    numbers = {group.label: str(number) for number, group in enumerate(comparison.groups, start=1)}
    for label, number in numbers.items():
        console.print(Text(f"{number}  {label}"))
    for table, title in (
        (accuracy_table(comparison), "accuracy"),
        (depth_table(comparison), f"accuracy per depth, {comparison.split}"),
        (bag_table(comparison), "bag of embeddings"),
        (cost_table(comparison), "parameters, memory of the largest stage, time"),
    ):
        if table.rows and len(table.head) > 1:
            console.print()
            console.print(Text(title, style="bold"))
            numbered = Table(table.head, tuple((numbers[row[0]], *row[1:]) for row in table.rows))
            _print_blocks(numbered, console)
    for note in comparison.notes:
        console.print()
        console.print(Text(f"note: {note}"))
    console.print()


def print_table(table: Table, *, stream: TextIO) -> None:
    """Print one table, whose first column names its rows. The rows are numbered as in `print_comparison`."""
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _NARROW)
    for number, row in enumerate(table.rows, start=1):
        console.print(Text(f"{number}  {row[0]}"), soft_wrap=True)
    console.print()
    rows = tuple((str(number), *row[1:]) for number, row in enumerate(table.rows, start=1))
    _print_blocks(Table(table.head, rows), console)


def print_rows(table: Table, *, stream: TextIO) -> None:
    """Print one table with a line for each row where that is possible, else by `print_table`."""
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _NARROW)
    if len(blocks(table, console.width)) == 1:
        console.print(_drawn(table))
    else:
        print_table(table, stream=stream)


def _print_blocks(table: Table, console: Console) -> None:
    """Print a table, cut between its columns if it is too wide."""
    for place, block in enumerate(blocks(table, console.width)):
        if place:
            console.print()
        console.print(_drawn(block))


def _drawn(table: Table) -> rich.table.Table:
    made = rich.table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading, *column in zip(table.head, *table.rows, strict=True):
        numeric = all(cell[:1].isdigit() or cell == NOT_MEASURED for cell in column)
        made.add_column(heading, justify="right" if numeric and heading != "run" else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*map(Text, row))
    return made
