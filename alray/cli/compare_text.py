"""A comparison of runs in the terminal."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from alray.report.compare import Comparison
from alray.report.compare_rows import Rows, accuracy_rows, bag_rows, cost_rows, depth_rows

_WIDE = 200
"""Columns of a file or a pipe, where nothing has to be cut or wrapped."""


def print_comparison(comparison: Comparison, *, stream: TextIO) -> None:
    """Print accuracies, accuracies per depth and costs, a row for each group of runs, and what must be said of them."""
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else _WIDE)
    console.print(_table(accuracy_rows(comparison)))
    for rows, title in (
        (depth_rows(comparison), f"accuracy per depth, {comparison.split}"),
        (bag_rows(comparison), None),
        (cost_rows(comparison), "parameters, memory of the largest stage, time"),
    ):
        if rows.rows and len(rows.head) > 1:
            console.print()
            if title is not None:
                console.print(Text(title, style="bold"))
            console.print(_table(rows))
    for note in comparison.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print()


def _table(rows: Rows) -> Table:
    made = Table(box=None, pad_edge=False)
    for number, heading in enumerate(rows.head):
        made.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in rows.rows:
        made.add_row(*map(Text, row))
    return made
