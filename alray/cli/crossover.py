"""`alray crossover`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from alray.api.console.layout import Page, unbroken
from alray.cli.options import AllowCode, Json, On, Overrides, Probe, SpecFile, Within
from alray.cli.terminal import reading, shown, terminal, writing
from alray.core.storage.location import location_of, require_no_links

if TYPE_CHECKING:
    from alray.report.crossover_page import CrossoverReport

PAGE = "crossover.html"


def crossover(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME...",
            help="Methods to compare with that of the spec.  [default: backpropagation; for a spec of that, "
            "associated_learning]",
            show_default=False,
        ),
    ] = "",
    devices: Annotated[
        str,
        typer.Option(
            metavar="N,N...",
            help="Numbers of devices. A way takes all devices of a number, or a divisor of it: 4,6 also tries 4 stages "
            "on 6 devices, and 6 does not.  [default: 1,2,4,8,16; with machines those of them that they have, and all "
            "of theirs]",
            show_default=False,
        ),
    ] = "",
    micro_batches: Annotated[
        str, typer.Option(metavar="N,N...", help="Numbers of micro-batches, for the schedules that have them.")
    ] = "4,8,16,32",
    link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LINK",
            help="The link between any two devices, or with machines the card of each node: '10 Gbit/s, 50 us' or "
            "25GB/s; without machines also host, where all devices are on one. May be given again.  [default: host, "
            "10 Gbit/s, 1 Gbit/s, 100 Mbit/s]",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE,SIZE...",
            help="Memory of each device, such as 16GB,80GB.  [default: with --on what is published; else no limit, and "
            "a half, a quarter and an eighth of what one device needs]",
            show_default=False,
        ),
    ] = "",
    steps: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD=N",
            help="Mini-batches that a method takes to the target; METHOD/SCHEDULE=N for one schedule, METHOD@SIZE=N "
            "for mini-batches of another size. May be given again.",
            show_default=False,
        ),
    ] = None,
    batch_sizes: Annotated[
        str,
        typer.Option(
            metavar="N,N...",
            help="Further sizes of the mini-batch, for which --steps says how many the target takes.",
            show_default=False,
        ),
    ] = "",
    on: On = None,
    within: Within = None,
    output: Annotated[str, typer.Option(metavar="FILE", help="The page to write.")] = PAGE,
    probe: Probe = False,
    allow_code: AllowCode = False,
    json: Json = False,
) -> None:
    """Show which method, schedule and number of replicas is fastest where, without a run.

    Predicts every schedule of the methods on every division of the devices into stages and replicas, over numbers of
    devices and micro-batches, links and memory. Writes a page with maps, and every way as CSV.
    """
    with terminal(as_json=json) as streams:
        from alray.api.crossover import crossover_report
        from alray.report.crossover import as_json

        page = location_of(output)
        files = page.parent / f"{page.name.removesuffix('.html')}_files"
        require_no_links(files, itself=True)
        with reading(streams, spec) as display:
            made = crossover_report(
                spec,
                overrides or [],
                methods=methods,
                devices=devices,
                micro_batches=micro_batches,
                links=link or [],
                memory=memory,
                batch_sizes=batch_sizes,
                steps=steps or [],
                on=on,
                within=within,
                probe=probe,
                allow_code=allow_code,
                teller=display,
            )
            display.doing("drawing the maps")
            with writing(page):
                made.write(page, files)
        if json:
            streams.answer({**as_json(made.found), "page": str(page)})
            return
        streams.put(crossover_text(made, streams.page))
        streams.fields([("page", unbroken(shown(page))), ("every way", unbroken(shown(made.ways_file(files))))])


def crossover_text(made: CrossoverReport, page: Page) -> str:
    """What is fastest at each place, and what the maps show."""
    from alray.report.crossover import findings, refused, winners_table

    heading = page.heading(f"{made.found.name}: the fastest way to train")
    table = winners_table(made.found)
    places = page.table(table.only(range(len(table.head) - 1)))
    notes = [*findings(made.found), *refused(made.found)]
    return "\n\n".join([heading, places, "\n".join(map(page.sentence, notes))]) + "\n"
