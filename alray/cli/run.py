"""`alray run` and `alray resume`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alray.cli.options import AllowCode, Json, Overrides, RunFolder, SpecFile
from alray.cli.terminal import INTERRUPTED, Terminal, terminal
from alray.errors import RequestError
from alray.spec.step_ranges import parse_steps

if TYPE_CHECKING:
    from alray.cli.display import Display
    from alray.cli.interrupts import Interrupts
    from alray.orchestrate import Finished

Inline = Annotated[
    bool, typer.Option("--inline", help="In this one process, without Ray: the same plan, the same bits.")
]
Address = Annotated[
    str | None,
    typer.Option(metavar="A", help="Address of a Ray cluster to attach to.  [default: a Ray of this machine alone]"),
]

Profile = Annotated[
    str | None,
    typer.Option(
        metavar="STEPS",
        help="Trace these mini-batches of every stage, such as 20-24,40, into profile/ of the run folder.",
        show_default=False,
    ),
]


def run(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    inline: Inline = False,
    run_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run folder; empty or not there yet.  [default: runs/<name>-<time>]"),
    ] = None,
    address: Address = None,
    profile: Profile = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Run a spec and write its report.

    Ctrl-C: finish the mini-batch, write a checkpoint, end. Twice: stop now.
    """
    given = overrides or []
    with terminal(as_json=json, spec=spec, overrides=given) as streams:
        _refuse_both(inline, address)
        steps = parse_steps(profile) if profile is not None else ()
        from alray.orchestrate import Options, run_spec

        options = Options(inline=inline, address=address, run_dir=run_dir, allow_code=allow_code, profile=steps)
        _watch(streams, lambda display, interrupts: run_spec(spec, given, options, display, interrupts))


def resume(
    run_dir: RunFolder,
    overrides: Overrides = None,
    *,
    inline: Inline = False,
    address: Address = None,
    profile: Profile = None,
    allow_change: Annotated[
        bool, typer.Option("--allow-change", help="Allow values that make it another run than it was.")
    ] = False,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Go on with a run from its checkpoint.

    The last one; perhaps on other stages, or for more epochs.
    """
    given = overrides or []
    with terminal(as_json=json, spec=run_dir / "spec.yaml", overrides=given) as streams:
        _refuse_both(inline, address)
        steps = parse_steps(profile) if profile is not None else ()
        from alray.orchestrate import Options, resume_run

        options = Options(inline=inline, address=address, allow_code=allow_code, profile=steps)
        _watch(
            streams,
            lambda display, interrupts: resume_run(
                run_dir, given, options, display, interrupts, allow_change=allow_change
            ),
        )


def _refuse_both(inline: bool, address: str | None) -> None:
    if inline and address is not None:
        raise RequestError(
            "a run in this process is on no cluster", key="--address", mend="leave out --inline or --address"
        )


def _watch(streams: Terminal, go: Callable[[Display, Interrupts], Finished]) -> None:
    """Let it run, show it, tell how it ended."""
    from alray.cli.ending import ending_text
    from alray.cli.interrupts import Interrupts

    with Interrupts() as interrupts, _display(streams, interrupts) as display:
        finished = go(display, interrupts)
    summary = finished.summary
    if streams.as_json:
        streams.answer(summary.model_dump(mode="json"))
    streams.say(ending_text(summary))
    if finished.error is not None:
        for problem in finished.error.problems:
            streams.tell(str(problem))
    if summary.status == "failed":
        raise typer.Exit(1)
    if summary.status == "interrupted":
        raise typer.Exit(INTERRUPTED)


def _display(streams: Terminal, interrupts: Interrupts) -> Display:
    if streams.err.isatty():
        from alray.cli.live import LiveDisplay

        return LiveDisplay(streams.err, interrupts)
    from alray.cli.lines import PlainLines

    return PlainLines(streams.err, interrupts)
