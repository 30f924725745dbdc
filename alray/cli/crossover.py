"""`alray crossover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from alray.api.console.layout import Page
from alray.cli.options import AllowCode, Json, Overrides, Probe, SpecFile
from alray.cli.terminal import terminal
from alray.report.table import Table
from alray.report.text import seconds

if TYPE_CHECKING:
    from alray.planning.prediction.crossover import Crossover


def crossover(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...",
            help="Methods to compare with that of the spec.  [default: backpropagation, or for a spec of that "
            "associated_learning]",
            show_default=False,
        ),
    ] = "",
    devices: Annotated[str, typer.Option(metavar="N,N...", help="Numbers of devices.")] = "1,2,4,8,16",
    micro_batches: Annotated[
        str, typer.Option(metavar="N,N...", help="Numbers of micro-batches, for the schedules that have them.")
    ] = "4,8,16,32",
    link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LINK",
            help="A link between any two devices: host, or a bandwidth and a latency, such as 10Gbit/s@50us. May be "
            "given again.  [default: host, and 10 Gbit/s, 1 Gbit/s and 100 Mbit/s]",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(metavar="SIZE,SIZE...", help="Memory of each device, such as 16GB,80GB.", show_default=False),
    ] = "",
    steps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD=N",
            help="Mini-batches that a method takes to the target; METHOD/SCHEDULE=N for one schedule, METHOD@SIZE=N for "
            "mini-batches of another size. May be given again.",
            show_default=False,
        ),
    ] = None,
    probe: Probe = False,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Show which method, schedule and number of replicas is fastest where, without a run.

    Predicts every method in every schedule on every division of the devices into stages and replicas, over numbers of
    devices and micro-batches, links and memory.
    """
    with terminal(as_json=json) as streams:
        from alray.api.console.interrupts import Interrupts
        from alray.cli.event_lines import display_on

        with display_on(streams, Interrupts()) as display:
            display.doing(f"reading {spec}")
            from alray.runtime.planner.crossover import LINKS, Asked, crossover_spec

            asked = Asked.of(
                methods=methods, devices=devices, micro_batches=micro_batches, links=link or LINKS, memory=memory, steps=steps or ()
            )
            found = crossover_spec(spec, overrides or [], asked, probe=probe, allow_code=allow_code, teller=display)
        streams.put(crossover_text(found, streams.page))


def crossover_text(found: Crossover, page: Page) -> str:
    """The fastest way with local losses and without, for each number of devices over each link."""
    rows = []
    for link in found.axes.links:
        for devices in found.axes.devices:
            best = [found.at(devices, link, local_losses=family)[:1] for family in (True, False)]
            cells = [cell for ways in best for cell in _way(ways)]
            ratio = found.seconds(best[1][0]) / found.seconds(best[0][0]) if all(best) else None
            rows.append((link, str(devices), *cells, "" if ratio is None else f"{ratio:.2f}"))
    head = ("link", "devices", "local losses", "step", "backpropagation", "step", "its time over theirs")
    return page.table(Table(head, tuple(rows)))


def _way(ways):
    if not ways:
        return ["", ""]
    way = ways[0].way
    return [f"{way.schedule} {way.stages}x{way.replicas}", seconds(ways[0].step_s)]
