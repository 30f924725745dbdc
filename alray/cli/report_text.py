"""The output of `alray report` and `alray compare` in the terminal."""

from __future__ import annotations

from alray.api.console.layout import Page
from alray.report.compare import ComparedRuns
from alray.report.compare_tables import bag_table, cost_table, depth_table, score_table
from alray.report.single_step import COLUMNS, HEAD, SingleStep, cells
from alray.report.table import Table


def single_step_text(step: SingleStep, page: Page) -> str:
    """The predicted and the measured row of each stage and of the step, and what the columns mean."""
    rows = [
        line
        for row in step.rows
        for line in (
            (row.label, *[""] * len(HEAD)),
            (" predicted", *cells(row.predicted)),
            (" measured", *cells(row.measured)),
        )
    ]
    heading = page.heading(f"{step.plan.method}, {step.plan.schedule_name}: one mini-batch, predicted and measured")
    meanings = [(heading, meaning.replace("`", "")) for heading, meaning in COLUMNS.items()]
    return f"{heading}\n{page.table(Table(('ms', *HEAD), tuple(rows)))}\n\n{page.fields(meanings)}\n"


def comparison_text(comparison: ComparedRuns, page: Page) -> str:
    """Metrics, metrics per depth and costs, a row for each group of runs, then the notes on them."""
    tables = [
        (title, table)
        for title, table in (
            (comparison.metric.title, score_table(comparison)),
            (f"{comparison.metric.title} per depth, {comparison.split}", depth_table(comparison)),
            ("bag of embeddings", bag_table(comparison)),
            ("parameters, memory of the largest stage, time", cost_table(comparison)),
        )
        if table.rows and len(table.head) > 1
    ]
    notes = "\n".join(page.sentence(f"note: {note}") for note in comparison.notes)
    parts = [f"{page.heading(title)}\n{page.table(table)}" for title, table in tables]
    return "\n\n".join([*parts, notes] if notes else parts)
