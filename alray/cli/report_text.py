"""What `alray report` and `alray compare` print in the terminal."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from alray.report import compare_tables
from alray.report.compare import Comparison
from alray.report.compare_tables import accuracy_table, bag_table, cost_table, depth_table
from alray.report.single_step import COLUMNS, HEAD, SingleStep, cells

_WIDE = 200
"""Columns of a file or a pipe, where nothing has to be cut or wrapped."""


def print_single_step(step: SingleStep, *, stream: TextIO) -> None:
    """Print the predicted and the measured row of each stage and of the step, and what the columns mean."""
    console = Console(file=stream, highlight=False)
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))  # fits into 80 columns
    made.add_column("ms", no_wrap=True)
    for heading in HEAD:
        made.add_column(heading.replace(" ", "\n"), justify="right")
    for row in step.rows:
        made.add_row(row.label)
        made.add_row(" predicted", *cells(row.predicted))
        made.add_row(" measured", *cells(row.measured))
    console.print(made)
    console.print()
    meanings = Table.grid(padding=(0, 2, 0, 0))
    meanings.add_column(no_wrap=True)
    for heading, meaning in COLUMNS.items():
        meanings.add_row(heading, Text(meaning.replace("`", "")))
    console.print(meanings)


def print_comparison(comparison: Comparison, *, stream: TextIO) -> None:
    """Print accuracies, accuracies per depth and costs, one row for each group of runs, then the notes on them."""
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _WIDE)
    console.print(_table(accuracy_table(comparison)))
    for table, title in (
        (depth_table(comparison), f"accuracy per depth, {comparison.split}"),
        (bag_table(comparison), None),
        (cost_table(comparison), "parameters, memory of the largest stage, time"),
    ):
        if table.rows and len(table.head) > 1:
            console.print()
            if title is not None:
                console.print(Text(title, style="bold"))
            console.print(_table(table))
    for note in comparison.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print()


def _table(table: compare_tables.Table) -> Table:
    made = Table(box=None, pad_edge=False)
    for number, heading in enumerate(table.head):
        made.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*map(Text, row))
    return made
