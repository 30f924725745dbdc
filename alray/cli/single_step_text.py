"""The single step of a run in the terminal."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.table import Table

from alray.report.single_step import SingleStep
from alray.report.single_step_section import HEAD, cells


def print_single_step(step: SingleStep, *, stream: TextIO) -> None:
    """Print a row for each stage and for the step, predicted, and the measured one beneath it."""
    console = Console(file=stream, highlight=False)
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))  # as wide as 80 columns
    made.add_column("ms", no_wrap=True)
    for heading in HEAD:
        made.add_column(heading.replace(" ", "\n"), justify="right")
    for row in step.rows:
        made.add_row(row.label)
        made.add_row(" predicted", *cells(row.predicted))
        made.add_row(" measured", *cells(row.measured))
    console.print(made)
