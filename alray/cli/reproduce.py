"""`alray reproduce`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from alray.api.console.layout import unbroken
from alray.cli.options import Address, AllowCode, Json, Output, Overrides, RunDir
from alray.cli.run import watched_on
from alray.cli.terminal import INTERRUPTED, Terminal, shown, terminal
from alray.core.storage.location import location_of

if TYPE_CHECKING:
    from alray.api.reproduction import Reproduction


def reproduce(
    run: RunDir,
    overrides: Overrides = None,
    *,
    output: Output = None,
    inline: Annotated[
        bool | None,
        typer.Option(
            "--inline/--no-inline", help="Run in this process, or on Ray.  [default: as recorded]", show_default=False
        ),
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
            _show(found, streams)
            raise typer.Exit(0 if found.same else 1)
        if finished.error is not None:
            raise finished.error
        streams.tell(f"interrupted; continue with  {unbroken(f'alray resume {shown(finished.summary.run_dir)}')}")
        raise typer.Exit(INTERRUPTED)


def _show(found: Reproduction, streams: Terminal) -> None:
    if streams.as_json:
        streams.answer(found.as_json())
    else:
        streams.fields(reproduction_rows(found))


def reproduction_rows(found: Reproduction) -> list[tuple[str, str]]:
    """The equal and the different values of the two runs, as names with values."""
    from alray.core.counting import counted
    from alray.report.text import score

    then, now = found.weights_sha256
    same = then == now
    rows = [
        ("reproduced", f"{counted(found.steps, 'mini-batch')} of {shown(found.recorded)}"),
        ("weights_sha256", f"{then}, the same" if same else f"{then} then"),
    ]
    if not same:
        rows.append(("", f"{now} now"))
    evaluations = counted(found.evaluations, "evaluation")
    if found.parted is None:
        rows.append(("evaluations", f"the same, {evaluations}" if found.evaluations else "none to compare"))
    else:
        at = f"after mini-batch {found.parted.step:,}, epoch {found.parted.epoch:g}"
        rows.append(("they part at", f"the evaluation {at}, of {evaluations}"))
        rows += [
            ("", f"{name} {score(old)} then, {score(new)} now") for name, (old, new) in found.parted.scores.items()
        ]
    if found.parted_losses is not None:
        rows.append(("losses part at", f"mini-batch {found.parted_losses:,}"))
    changed = [f"{name} was {old}, is {new}" for name, (old, new) in found.environment.items()]
    rows += [("environment" if not index else "", line) for index, line in enumerate(changed or ["the same"])]
    rows.append(("run folder", shown(found.run_dir)))
    return rows
