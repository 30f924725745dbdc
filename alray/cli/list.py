"""`alray list`."""

from __future__ import annotations

from typing import Annotated

import typer

from alray.api.console.layout import unbroken
from alray.cli.options import Json, gives_value
from alray.cli.terminal import shown, terminal
from alray.core.storage.location import location_of


def list_runs(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER|FILTER",
            help="Folders that hold runs and studies, or their URLs; and filters such as method=backpropagation, "
            "state=finished or name=mlp*.  [default: runs and studies]",
            show_default=False,
        ),
    ] = None,
    *,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help="Sort by date, folder, name, method, state, validation, test, ...")
    ] = "date",
    reverse: Annotated[bool, typer.Option("--reverse", help="Turn the order round.")] = False,
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
        rows = ordered(rows, sort, reverse=reverse)
        if json:
            streams.answer({"runs": [row.as_json() for row in rows]})
            return
        if rows:
            table = table_of(rows)
            named = ((unbroken(shown(folder)), *cells, unbroken(begun)) for folder, *cells, begun in table.rows)
            streams.put(streams.page.table(Table(table.head, tuple(named))))
        for line in notes_on(rows):
            streams.say(line)
