"""`alray fit`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from alray.api.console.layout import Page, unbroken
from alray.cli.options import AllowCode, CostsFile, Json, Link, On, Overrides, Probe, SpecFile, Within
from alray.cli.terminal import reading, terminal
from alray.core.counting import counted
from alray.planning.prediction.basis import basis_of
from alray.report.table import Table
from alray.report.text import seconds, seconds_range, share, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alray.runtime.planner.fitting import Fitting


def fit(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    on: On = None,
    link: Link = None,
    within: Within = None,
    costs: CostsFile = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="NxSIZE",
            help="In place of --on, devices and their memory, such as 4x24GB, or 2x80GB,24GB for devices that differ, "
            "with the speed and the links of this machine.",
            show_default=False,
        ),
    ] = None,
    probe: Probe = False,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Show how a network fits on some devices, without running it.

    Tries every schedule of the method on every number of stages, with the numbers of micro-batches from one to four for
    each stage, and with more where nothing fits. It searches the best cut of those that could be the fastest. A value
    that overrides give for pipeline.schedule, pipeline.stages or pipeline.micro_batches is not searched; those of the
    file are. Exits with 1 if nothing fits.
    """
    with terminal(as_json=json) as streams:
        from alray.api.plans import sizes_of, with_machines

        given = with_machines(spec, overrides or [], on=on, link=link, within=within, costs=costs)
        sizes = sizes_of(devices)
        with reading(streams, spec) as display:
            from alray.runtime.options import Options
            from alray.runtime.planner.fitting import fit_spec

            found = fit_spec(spec, given, sizes, probe=probe, options=Options(allow_code=allow_code), teller=display)
        if json:
            streams.answer(found.as_json())
        else:
            allowing = ("--allow-code",) if allow_code else ()
            streams.put(fitting_text(found, command=["alray", "run", str(spec), *allowing], page=streams.page))
        if found.best is None:
            raise typer.Exit(1)


def fitting_text(found: Fitting, *, command: Sequence[str], page: Page) -> str:
    """A row for each schedule on each number of stages, what fits first; then how to run the best one.

    Args:
        command: that runs the spec.
    """
    from alray.planning.schedules.table import SCHEDULES

    replicas = f", {counted(found.replicas, 'replica')}" if found.replicas > 1 else ""
    sizes = [f"{found.devices.count(each)} x {size(each)}" for each in dict.fromkeys(found.devices)]
    where = ", ".join(sizes) if found.machines is None else f"{found.machines} ({', '.join(sizes)})"
    said = [basis_of(found.costs)["times"]] if found.machines is None else list(found.basis.values())
    head = [
        page.heading(f"{found.name}: {found.method}, on {where}{replicas}"),
        *map(page.sentence, [*said, *([found.assumed] if found.assumed else [])]),
    ]
    notes = [*found.refused]
    if found.machines is None:
        notes.append("step: with a device for each stage; `alray plan` counts the processors of this machine")
    needs = "the data need" if found.machines else "libraries and the data need"
    notes.append(f"left: of what each stage may hold, besides its tensors; {needs} some of it")
    if not found.rows:
        notes.append("no schedule can run, for the reasons above")
    elif found.best is None:
        pipelines = any(row.stages > 1 and SCHEDULES[row.schedule].is_pipeline for row in found.rows)
        again = pipelines and not found.recomputes
        also = ", or pipeline.activation_checkpointing, which is not searched" if again else ""
        notes.append(f"nothing fits: use larger or more devices, or smaller components or mini-batches{also}")
    else:
        notes.append(f"run it with  {unbroken(shlex.join([*command, *found.overrides(found.best)]))}")
    return "\n\n".join(["\n".join(head), page.table(_table(found)), "\n".join(map(page.sentence, notes))])


def _table(found: Fitting) -> Table:
    in_parts = any(row.micro_batches > 1 for row in found.rows)
    factor, unit = (1e9, "GB") if min(found.devices) >= 1e9 else (1e6, "MB")
    parts = ("micro batches",) if in_parts else ()
    ranged = ("range",) if any(row.predicted_step_range_s for row in found.rows) else ()
    rows = tuple(
        (
            unbroken(f"{'fits' if row.fits else 'no':4}  {row.schedule}"),
            str(row.stages),
            *((str(row.micro_batches),) if in_parts else ()),
            ", ".join(map(str, row.partition)),
            seconds(row.predicted_step_time_s),
            *((seconds_range(row.predicted_step_range_s),) if ranged else ()),
            share(row.predicted_bubble),
            ", ".join(_digits(left / factor) for left in row.left_bytes),
        )
        for row in found.rows
    )
    return Table(
        (
            unbroken(f"{'':4}  schedule"),
            "stages",
            *parts,
            "cut",
            "step",
            *ranged,
            "bubble",
            f"left, {unit}",
        ),
        rows,
    )


def _digits(value: float) -> str:
    """Three digits, which are enough to choose by."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
