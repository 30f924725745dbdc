"""`alray report`, `alray compare` and `alray list`: what run folders show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alray.api.console.layout import Page
from alray.cli.options import Json, gives_value
from alray.cli.study import show_study
from alray.cli.terminal import shown, terminal, writing
from alray.core.errors import RequestError
from alray.core.storage.location import location_of, require_no_links

if TYPE_CHECKING:
    from alray.report.compare import ComparedRuns
    from alray.report.single_step import SingleStep

_PAGE = "compare.html"


def report(
    folder: Annotated[
        str,
        typer.Argument(metavar="RUN|STUDY", help="A run folder, or its URL, or a study folder."),
    ],
    *,
    columns: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...",
            help="Of a study: the columns of its table, by their names in tables/points.csv, such as "
            "variant,validation,steps_to_target.",
            show_default="those that suit the study",
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Write the report of a run again and print its single step, or that of a study and print its table.

    Beside the page it writes every figure (SVG, PDF, CSV) and every table (CSV, Markdown, LaTeX) as a file. It reads
    the records of the run or of the trials, which may still be going on.
    """
    with terminal(as_json=json) as streams:
        location = location_of(folder)
        if isinstance(location, Path) and (location / "trials.json").is_file():
            from alray.studies.folder import StudyFolder
            from alray.studies.report import write_report

            named = [name.strip() for name in columns.split(",")] if columns else []
            show_study(write_report(StudyFolder.open(location), named), streams)
            return
        if columns:
            raise RequestError("only a study has columns to choose", key="--columns", hint="name a study folder")
        from alray.report.folder import read_run
        from alray.report.make import make_report
        from alray.report.single_step import single_step

        path = make_report(location, files=True)
        run = read_run(location)
        step = single_step(run.effective_records, run.plan)
        if json:
            streams.answer({"report": str(path), "single_step": step.as_json()})
        else:
            streams.put(single_step_text(step, streams.page))
            streams.fields([("report", shown(path))])


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="Run folders.")],
    *,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The page to write.",
            show_default=f"{_PAGE} beside the first run folder",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Compare runs: print tables and write a page with curves, and its figures and tables as files.

    Runs that differ only in their seed share a row, with mean and spread. The validation set chooses the accuracies.
    """
    with terminal(as_json=json) as streams:
        from alray.core.run_folder.records import replace_file
        from alray.report.compare import compare_runs
        from alray.report.compare_page import ComparisonReport
        from alray.report.figure import write_exhibits

        folders = [location_of(run) for run in runs]
        comparison = compare_runs(folders)
        page = location_of(output) if output is not None else folders[0].resolve().parent / _PAGE
        files = page.parent / f"{page.name.removesuffix('.html')}_files"
        require_no_links(files, itself=True)
        made = ComparisonReport(comparison)
        html = made.page()
        with writing(page):
            page.parent.mkdir(parents=True, exist_ok=True)
            replace_file(page, html)
            write_exhibits(made.exhibits, files)
        if json:
            streams.answer({**comparison.as_json(), "page": str(page)})
            return
        streams.put(comparison_text(comparison, streams.page) + "\n")
        streams.fields([("page", shown(page))])


def single_step_text(step: SingleStep, page: Page) -> str:
    """The predicted and the measured row of each stage and of the step; the page says what the columns mean."""
    from alray.report.single_step import HEAD, cells
    from alray.report.table import Table

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
    return f"{heading}\n{page.table(Table(('ms', *HEAD), tuple(rows)))}\n"


def comparison_text(comparison: ComparedRuns, page: Page) -> str:
    """Metrics, metrics per depth and costs, a row for each group of runs, then the notes on them."""
    from alray.report.compare_tables import cost_table, depth_table, score_table

    tables = [
        (title, table)
        for title, table in (
            (comparison.metric.title, score_table(comparison)),
            (f"{comparison.metric.title} per depth, {comparison.split}", depth_table(comparison)),
            ("parameters, memory of the largest stage, time", cost_table(comparison)),
        )
        if table.rows and len(table.head) > 1
    ]
    notes = "\n".join(page.sentence(f"note: {note}") for note in comparison.notes)
    parts = [f"{page.heading(title)}\n{page.table(table)}" for title, table in tables]
    return "\n\n".join([*parts, notes] if notes else parts)


def list_runs(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER|FILTER",
            help="Folders that hold runs and studies, or their URLs; and filters such as method=backpropagation, "
            "state=finished or name=mlp*.",
            show_default="runs and studies",
        ),
    ] = None,
    *,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help="Sort by date, folder, name, method, state, validation, test, ...")
    ] = "date",
    json: Json = False,
) -> None:
    """List the runs and studies of a folder.

    The latest come first. The state is `running` where something was written a short time ago. A damaged folder is
    listed as such.
    """
    with terminal(as_json=json) as streams:
        from alray.report.table import Table
        from alray.studies.listing import chosen, notes_on, ordered, rows_in, table_of

        words = given or []
        filters = [word for word in words if gives_value(word)]
        rows = chosen(rows_in([location_of(word) for word in words if word not in filters]), filters)
        rows = ordered(rows, sort)
        if json:
            streams.answer({"runs": [row.as_json() for row in rows]})
            return
        if rows:
            table = table_of(rows)
            named = ((shown(folder), *cells, begun) for folder, *cells, begun in table.rows)
            streams.put(streams.page.table(Table(table.head, tuple(named))))
        for line in notes_on(rows):
            streams.say(line)
