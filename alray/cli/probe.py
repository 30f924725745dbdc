"""`alray probe`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alray.api.console.layout import unbroken
from alray.cli.options import AllowCode, Json, Overrides, SpecFile
from alray.cli.terminal import reading, shown, terminal, writing
from alray.core.counting import counted
from alray.report.table import Table
from alray.report.text import seconds

if TYPE_CHECKING:
    from alray.planning.prediction.costs import Costs


def probe(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the costs into this JSON file.", show_default=False),
    ] = None,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Measure the components of a spec on this machine, to plan for others like it.

    `alray plan --costs FILE` reads the file, also on machines that have no such device.
    """
    with terminal(as_json=json) as streams:
        with reading(streams, spec) as display:
            from alray.core.run_folder.records import write_json
            from alray.orchestrate import probe_spec
            from alray.runtime.options import Options

            options = Options(allow_code=allow_code)
            workload, costs = probe_spec(spec, overrides or [], options=options, observer=display)
        if output is not None:
            with writing(output):
                write_json(output, costs.as_json())
        if json:
            streams.answer(costs.as_json())
            return
        page = streams.page
        threads = counted(costs.threads, "thread")
        heading = page.heading(
            f"{workload.spec.name}: {costs.device}, {threads}, {costs.batch_size} samples a mini-batch"
        )
        streams.put(f"{heading}\n\n{page.table(_table(costs))}")
        if output is not None:
            streams.fields([("written to", unbroken(shown(output)))])


def _table(costs: Costs) -> Table:
    return Table(
        ("component", "name", "F", "B", "U", "parameters"),
        tuple(
            (
                str(index),
                unbroken(each.name),
                *map(seconds, (each.forward_s, each.backward_s, each.update_s)),
                f"{each.parameters:,}",
            )
            for index, each in enumerate(costs.components)
        ),
    )
