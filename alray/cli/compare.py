"""`alray compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from alray.cli.options import Json
from alray.cli.terminal import shown, terminal
from alray.errors import RequestError

_PAGE = "compare.html"


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.", show_default=False)],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"The page.  [default: {_PAGE} beside the first run folder]", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Put runs side by side: tables here, and a page with curves.

    Runs that differ by their seed alone become one row, with mean and spread. Models are chosen on validation.
    """
    with terminal(as_json=json) as streams:
        from alray.cli.compare_text import print_comparison
        from alray.report.compare import compare_runs
        from alray.report.compare_page import write_comparison

        comparison = compare_runs(runs)
        page = output or runs[0].resolve().parent / _PAGE
        try:
            write_comparison(comparison, page)
        except OSError as error:
            raise RequestError(
                f"cannot be written: {error.strerror}", file=str(page), mend="name a file you can write, by --output"
            ) from error
        if json:
            streams.answer({**comparison.as_json(), "page": str(page)})
            return
        print_comparison(comparison, stream=streams.out)
        streams.say(f"curves in {shown(page)}")
