"""`alray fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from alray.cli.terminal import AllowCode, Json, Overrides, SpecFile, terminal

if TYPE_CHECKING:
    from alray.fitting import Fitting


def fit(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    devices: Annotated[
        str,
        typer.Option(
            metavar="NxSIZE",
            help="The devices and their memory, such as 4x24GB, or 2x80GB,24GB for devices that differ.",
            show_default=False,
        ),
    ],
    probe: Annotated[
        bool, typer.Option("--probe", help="Measure the components on this machine instead of estimating their costs.")
    ] = False,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Show how a network fits on some devices, without running it.

    Tries every schedule of the method on every number of stages, each with its best cut and number of micro-batches.
    A value that is given for pipeline.schedule, pipeline.stages or pipeline.micro_batches is not searched. Exits with
    1 if nothing fits.
    """
    given = overrides or []
    with terminal(as_json=json, spec=spec, overrides=given) as streams:
        from alray.cli.display import display_on
        from alray.cli.interrupts import Interrupts

        with display_on(streams, Interrupts()) as display:
            display.doing(f"reading {spec}")
            from alray.fitting import fit_spec, parse_devices

            found = fit_spec(spec, given, parse_devices(devices), probe=probe, allow_code=allow_code, observer=display)
        if json:
            streams.answer(found.as_json())
        else:
            print_fitting(found, spec=str(spec), stream=streams.out)
        if found.best is None:
            raise typer.Exit(1)


def print_fitting(found: Fitting, *, spec: str, stream: TextIO) -> None:
    """Print a row for each schedule on each number of stages, what fits first; then how to run the best one."""
    import shlex

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from alray.report.text import counted, seconds, share, size

    console = Console(file=stream, highlight=False)
    replicas = f", {counted(found.replicas, 'replica')}" if found.replicas > 1 else ""
    sizes = [f"{found.devices.count(each)} x {size(each)}" for each in dict.fromkeys(found.devices)]
    console.print(Text(f"{found.name}: {found.method}, on {', '.join(sizes)}{replicas}", style="bold"), soft_wrap=True)
    measured = {"probe": "times measured on this machine", "given": "times given in the spec"}
    console.print(Text(measured.get(found.costs.source, "times estimated by counting; --probe measures them")))
    console.print()
    in_parts = any(row.micro_batches > 1 for row in found.rows)
    factor, unit = (1e9, "GB") if min(found.devices) >= 1e9 else (1e6, "MB")
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("schedule", no_wrap=True)
    for heading in ("stages", *(("micro-\nbatches",) if in_parts else ()), "cut", "step", "bubble", f"left, {unit}"):
        table.add_column(heading, justify="right", vertical="top")
    for row in found.rows:
        table.add_row(
            "fits" if row.fits else "no",
            row.schedule,
            str(row.stages),
            *((str(row.micro_batches),) if in_parts else ()),
            ", ".join(map(str, row.partition)),
            seconds(row.predicted_step_time_s),
            share(row.predicted_bubble),
            ", ".join(_digits(left / factor) for left in row.left_bytes),
        )
    console.print(table)
    console.print()
    for reason in found.refused:
        console.print(Text(reason))
    console.print(
        Text("left: of each stage's device, beside its tensors; libraries need some of it, and so does the data")
    )
    if found.best is None:
        console.print(Text("nothing fits: use larger or more devices, or smaller components or mini-batches"))
        return
    best = " ".join(found.overrides(found.best))
    console.print(Text(f"run it with  alray run {shlex.quote(spec)} {best}"), soft_wrap=True)


def _digits(value: float) -> str:
    """Three digits, which are enough to choose by."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"
