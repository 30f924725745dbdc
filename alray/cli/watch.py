"""`alray watch`."""

from __future__ import annotations

from typing import Annotated

import typer

from alray.api.console.layout import unbroken
from alray.cli.options import Json, RunDir
from alray.cli.terminal import INTERRUPTED, shown, terminal
from alray.core.storage.location import location_of


def watch(
    run_dir: RunDir,
    *,
    port: Annotated[
        int,
        typer.Option(metavar="N", help="The port of the page.  [default: any that is free]", show_default=False),
    ] = 0,
    json: Json = False,
) -> None:
    """Show a run on a live page while it is running.

    The page has the figures of the report. Only this machine can open it, and it changes nothing. The command ends with
    the run; Ctrl-C ends it before, and leaves the run alone.
    """
    with terminal(as_json=json) as streams:
        from alray.report.live.board import Board
        from alray.report.live.following import Following
        from alray.report.live.server import listen
        from alray.report.live.watch import ending
        from alray.report.live.watch import watch as show
        from alray.report.make import PAGE

        following = Following(location_of(run_dir))
        following.read()
        if not following.has_ended:
            with listen(port) as door:
                streams.fields([("watching", shown(following.path)), ("page", door.address)])
                try:
                    show(following, door, Board())
                except KeyboardInterrupt as interrupt:
                    streams.tell("the run continues")
                    raise typer.Exit(INTERRUPTED) from interrupt
        report = following.path / PAGE
        written = following.state != "killed" and report.is_file()
        if json:
            path = str(report) if written else None
            streams.answer({"run_dir": str(following.path), "state": following.state, "report": path})
        streams.say(ending(following))
        if written:
            streams.fields([("report", unbroken(shown(report)))])
        if following.state in ("failed", "killed"):
            raise typer.Exit(1)
