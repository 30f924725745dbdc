"""`alray run` and `alray resume`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from alray.cli.options import (
    Address,
    AllowCode,
    Inline,
    Json,
    Output,
    Overrides,
    Profile,
    RunDir,
    SpecFile,
)
from alray.cli.terminal import INTERRUPTED, Terminal, shown, terminal
from alray.core.errors import CheckpointError
from alray.core.storage.location import location_of

if TYPE_CHECKING:
    from alray.api.console.interrupts import Interrupts
    from alray.runtime.observer import Observer
    from alray.runtime.options import Finished


def run(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    inline: Inline = False,
    output: Output = None,
    address: Address = None,
    profile: Profile = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Train the network of a spec and write a report.

    Ctrl-C finishes the current mini-batch, writes a checkpoint and stops; so do SIGTERM and a closed terminal. Ctrl-C
    twice stops at once.
    """
    given = overrides or []
    with terminal(as_json=json) as streams:
        from alray.api import run_steps

        finished = run_steps.run(
            watched_on(streams),
            spec,
            given,
            inline=inline,
            alone=True,
            output=output,
            address=address,
            profile=profile,
            allow_code=allow_code,
        )
        _show_end(streams, finished)


def resume(
    run_dir: RunDir,
    overrides: Overrides = None,
    *,
    inline: Inline = False,
    address: Address = None,
    profile: Profile = None,
    allow_change: Annotated[
        bool, typer.Option("--allow-change", help="Also allow values that change the mathematics of the run.")
    ] = False,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Continue a run from its last checkpoint.

    The number of stages, the partition and the number of epochs may change.
    """
    given, folder = overrides or [], location_of(run_dir)
    with terminal(as_json=json) as streams:
        from alray.api import run_steps

        finished = run_steps.resume(
            watched_on(streams),
            folder,
            given,
            allow_change=allow_change,
            inline=inline,
            alone=True,
            address=address,
            profile=profile,
            allow_code=allow_code,
        )
        _show_end(streams, finished)


@contextmanager
def watched_on(streams: Terminal) -> Iterator[tuple[Observer, Interrupts]]:
    """The display of a run on the streams of a command, and the counter of the requests to stop it."""
    from alray.api.console.display import terminal_display
    from alray.api.console.interrupts import Interrupts

    with Interrupts() as interrupts, terminal_display(streams.err, interrupts, streams.began_s) as display:
        yield display, interrupts


def _show_end(streams: Terminal, finished: Finished) -> None:
    """Show the results of a run, and set the exit code."""
    from alray.api.console.layout import unbroken
    from alray.api.console.summary_text import summary_rows

    summary = finished.summary
    if streams.as_json:
        streams.answer(summary.model_dump(mode="json"))
    rows = summary_rows(summary, shown)
    if summary.status != "finished":
        rows.append(("continue with", unbroken(f"alray resume {shown(summary.run_dir)}")))
    streams.fields(rows)
    if finished.error is not None:
        streams.explain(finished.error.problems)
    if summary.status == "failed":
        # A damaged folder is a wrong request in every command: here the stages found it, before they trained.
        raise typer.Exit(2 if isinstance(finished.error, CheckpointError) else 1)
    if summary.status == "interrupted":
        raise typer.Exit(INTERRUPTED)
