"""`alray run` and `alray resume`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from alray.cli.terminal import INTERRUPTED, AllowCode, Events, Json, Overrides, RunDir, SpecFile, Terminal, terminal
from alray.errors import CheckpointError
from alray.loading.step_ranges import parse_steps
from alray.storage.location import location_of

if TYPE_CHECKING:
    from alray.console.interrupts import Interrupts
    from alray.orchestrate import Finished
    from alray.runner.driver import Observer

Inline = Annotated[
    bool, typer.Option("--inline", help="Run in this process, without Ray: the same plan, the same bits.")
]
Address = Annotated[
    str | None,
    typer.Option(metavar="A", help="The address of a Ray cluster to connect to.  [default: start Ray on this machine]"),
]

Watch = Annotated[
    bool, typer.Option("--watch", help="Show the run on a live page of this machine, as `alray watch` does.")
]

Profile = Annotated[
    str | None,
    typer.Option(
        metavar="STEPS",
        help="Mini-batches to trace with torch.profiler, such as 20-24,40, into profile/ in the run folder.",
        show_default=False,
    ),
]


def run(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    inline: Inline = False,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="The run folder, new or empty, or a URL: s3://...  [default: runs/<name>-<time>]"
        ),
    ] = None,
    address: Address = None,
    profile: Profile = None,
    watch: Watch = False,
    allow_code: AllowCode = False,
    events: Events = False,
    json: Json = False,
) -> None:
    """Train the network of a spec and write a report.

    Ctrl-C finishes the current mini-batch, writes a checkpoint and stops; so do SIGTERM and a closed terminal. Ctrl-C
    twice stops at once.
    """
    given = overrides or []
    with terminal(as_json=json, as_events=events) as streams:
        steps = parse_steps(profile) if profile is not None else ()

        def go(display: Observer, interrupts: Interrupts) -> Finished:
            display.doing(f"reading {spec}")
            from alray.orchestrate import Options, run_spec

            folder = location_of(output) if output is not None else None
            options = Options(
                inline=inline, address=address, run_dir=folder, allow_code=allow_code, profile=steps, watch=watch
            )
            return run_spec(spec, given, options, display, interrupts)

        _watch(streams, go)


def resume(
    run_dir: RunDir,
    overrides: Overrides = None,
    *,
    inline: Inline = False,
    address: Address = None,
    profile: Profile = None,
    watch: Watch = False,
    allow_change: Annotated[
        bool, typer.Option("--allow-change", help="Also allow values that change the mathematics of the run.")
    ] = False,
    allow_code: AllowCode = False,
    events: Events = False,
    json: Json = False,
) -> None:
    """Continue a run from its last checkpoint.

    The number of stages, the partition and the number of epochs may change.
    """
    given, folder = overrides or [], location_of(run_dir)
    with terminal(as_json=json, as_events=events) as streams:
        steps = parse_steps(profile) if profile is not None else ()

        def go(display: Observer, interrupts: Interrupts) -> Finished:
            display.doing(f"reading {run_dir}")
            from alray.orchestrate import Options, resume_run

            options = Options(inline=inline, address=address, allow_code=allow_code, profile=steps, watch=watch)
            return resume_run(folder, given, options, display, interrupts, allow_change=allow_change)

        _watch(streams, go)


def _watch(streams: Terminal, go: Callable[[Observer, Interrupts], Finished]) -> None:
    """Run `go`, show its progress and its results, and set the exit code."""
    from alray.cli.event_lines import display_on
    from alray.cli.summary_text import summary_rows
    from alray.console.interrupts import Interrupts

    with Interrupts() as interrupts, display_on(streams, interrupts) as display:
        finished = go(display, interrupts)
    summary = finished.summary
    if streams.as_json or streams.as_events:
        streams.answer(summary.model_dump(mode="json"))
    streams.fields(summary_rows(summary))
    if finished.error is not None:
        streams.explain(finished.error.problems)
    if summary.status == "failed":
        # A damaged folder is a wrong request in every command: here the stages found it, before they trained.
        raise typer.Exit(2 if isinstance(finished.error, CheckpointError) else 1)
    if summary.status == "interrupted":
        raise typer.Exit(INTERRUPTED)
