"""`alray run`, `alray resume`, `alray reproduce` and `alray prove`: the commands that train."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from alray.api.reproduction import Reproduction
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
    from alray.api.console.summary_text import summary_rows

    summary = finished.summary
    if streams.as_json:
        streams.answer(summary.model_dump(mode="json"))
    rows = summary_rows(summary, shown)
    if summary.status != "finished":
        rows.append(("continue with", f"alray resume {shown(summary.run_dir)}"))
    streams.fields(rows)
    if finished.error is not None:
        streams.explain(finished.error.problems)
    if summary.status == "failed":
        # A damaged folder is a wrong request in every command: here the stages found it, before they trained.
        raise typer.Exit(2 if isinstance(finished.error, CheckpointError) else 1)
    if summary.status == "interrupted":
        raise typer.Exit(INTERRUPTED)


def reproduce(
    run: RunDir,
    overrides: Overrides = None,
    *,
    output: Output = None,
    inline: Annotated[
        bool | None,
        typer.Option("--inline/--no-inline", help="Run in this process, or on Ray.", show_default="as recorded"),
    ] = None,
    address: Address = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Do a run again as it was recorded, and compare the weights and the evaluations.

    Takes the spec and the code of the run folder, and as many mini-batches as its last weights have seen. Stages and
    schedule may be others where the weights stay the same. Exits with 0 if they are the same, with 1 if they are not.
    """
    given, folder = overrides or [], location_of(run)
    with terminal(as_json=json) as streams:
        from alray.api import run_steps

        finished, found = run_steps.reproduce(
            watched_on(streams),
            folder,
            given,
            in_process=inline,
            alone=True,
            output=output,
            address=address,
            allow_code=allow_code,
        )
        if found is not None:
            if json:
                streams.answer(found.as_json())
            else:
                streams.fields(reproduction_rows(found))
            raise typer.Exit(0 if found.same else 1)
        if finished.error is not None:
            raise finished.error
        streams.tell(f"interrupted; continue with  alray resume {shown(finished.summary.run_dir)}")
        raise typer.Exit(INTERRUPTED)


def reproduction_rows(found: Reproduction) -> list[tuple[str, str]]:
    """The equal and the different values of the two runs, as names with values."""
    from alray.core.counting import counted
    from alray.report.text import score

    then, now = found.weights_sha256
    rows = [
        ("reproduced", f"{counted(found.steps, 'mini-batch')} of {shown(found.recorded)}"),
        ("weights_sha256", f"{then}, the same" if then == now else f"{then} then, {now} now"),
    ]
    evaluations = counted(found.evaluations, "evaluation")
    if found.parted is None:
        rows.append(("evaluations", f"the same, {evaluations}" if found.evaluations else "none to compare"))
    else:
        at = f"after mini-batch {found.parted.step:,}, epoch {found.parted.epoch:g}"
        rows.append(("they part at", f"the evaluation {at}, of {evaluations}"))
        scores = found.parted.scores.items()
        rows += [(name, f"{score(old)} then, {score(new)} now") for name, (old, new) in scores]
    if found.parted_losses is not None:
        rows.append(("losses part at", f"mini-batch {found.parted_losses:,}"))
    changed = "; ".join(f"{name} was {old}, is {new}" for name, (old, new) in found.environment.items())
    return [*rows, ("environment", changed or "the same"), ("run folder", shown(found.run_dir))]


_NOISE = {"source": "synthetic", "shape": [3, 64, 64], "classes": 1000, "samples": 96, "batch_size": 8}
"""What a model is trained on that has no spec."""


def prove(
    of: Annotated[
        str,
        typer.Argument(
            metavar="SPEC|MODEL",
            help="A spec, or a model as `model.from` names it, such as torchvision:resnet18, on noise.",
        ),
    ],
    overrides: Overrides = None,
    *,
    mini_batches: Annotated[int, typer.Option(help="Train so many.", min=2)] = 6,
    stages: Annotated[int | None, typer.Option(help="Largest number of stages.", show_default="3", min=1)] = None,
    inline: Annotated[
        bool, typer.Option("--inline/--no-inline", help="Run in this process, or each stage as a process of Ray.")
    ] = True,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Train a few mini-batches in every way that fits, and compare the weights.

    The ways: a plain loop of torch, one stage, every schedule on several stages, and a stop with a resume. Exits with 0
    if every way trains the weights of its reference to the bit, with 1 if one does not.
    """
    with terminal(as_json=json) as streams, watched_on(streams) as (observer, interrupts):
        observer.doing("loading torch")
        from alray.api.objects import taken
        from alray.api.proof import prove_taken
        from alray.runtime.options import Options

        found = prove_taken(
            taken(_spec_of(of), overrides or []),
            mini_batches=mini_batches,
            stages=stages,
            options=Options(inline=inline, alone=True, allow_code=allow_code, pages=False),
            observer=observer,
            interrupts=interrupts,
        )
        if streams.as_json:
            streams.answer(found.as_json())
        else:
            streams.fields(found.rows())
    raise typer.Exit(0 if found.same else 1)


def _spec_of(of: str) -> Path | dict[str, Any]:
    if ":" not in of or Path(of).exists():
        return Path(of)
    run = {"epochs": 1}
    return {"name": "proof", "method": "backpropagation", "model": {"from": of}, "data": _NOISE, "run": run}
