"""`alray plan` and `alray probe`: how a spec would run, and the costs that say it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alray.cli.options import AllowCode, CostsFile, Json, Link, On, Overrides, Probe, SpecFile, Within
from alray.cli.terminal import Terminal, reading, shown, terminal, writing
from alray.core.counting import counted
from alray.core.errors import RequestError
from alray.core.storage.location import location_of, require_no_links
from alray.report.table import Table
from alray.report.text import seconds

if TYPE_CHECKING:
    from alray.planning.prediction.costs import Costs

PAGE = "map.html"
_DRAWN = 6
"""Mini-batches in a drawing: enough to see the pipeline fill and reach its steady state."""


def plan(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="A table of ways: every schedule on up to eight stages, or on as many as machines elsewhere have "
            "devices, in all numbers of micro-batches; what fits first, and the command of the best.",
        ),
    ] = False,
    on: On = None,
    devices: Annotated[
        str | None,
        typer.Option(
            metavar="NxSIZE",
            help="Compare ways on devices of which the memory alone is known, such as 4x24GB, with the speed and the "
            "links of this machine. Of a map their numbers: 1,2,4.",
        ),
    ] = None,
    link: Link = None,
    within: Within = None,
    costs: CostsFile = None,
    probe: Probe = False,
    map_ways: Annotated[
        bool,
        typer.Option(
            "--map",
            help="Write a page with maps of the fastest way over devices and links, and all ways as CSV. Python's "
            "`alray.map_ways` also takes methods, and mini-batches to a target.",
        ),
    ] = False,
    output: Annotated[str | None, typer.Option(metavar="FILE", help="The page of a map.", show_default=PAGE)] = None,
    allow_code: AllowCode = False,
    json: Json = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw the schedule into this SVG file.")] = None,
) -> None:
    """Show how a spec would run, without running it: here, or on machines that are not here.

    Prints partition, schedule, predicted step time, bubble, memory and messages, and where its figures come from.

    --compare and --devices show all ways to run its method instead. A value that overrides give for pipeline.schedule,
    pipeline.stages or pipeline.micro_batches is not searched; those of the file are. The exit code is 1 if nothing
    fits. --map shows which method, schedule and number of replicas is fastest where.
    """
    with terminal(as_json=json) as streams:
        texts, links = overrides or [], link or []
        if map_ways:
            for key, value in {"--compare": compare, "--costs": costs, "--svg": svg}.items():
                if value:
                    raise RequestError("a map does not take this option", key=key, hint="leave it out, or --map")
            page = location_of(output or PAGE)
            files = page.parent / f"{page.name.removesuffix('.html')}_files"
            require_no_links(files, itself=True)
            with reading(streams, spec) as display:
                from alray.api.ways_map import map_report
                from alray.cli.ways_text import crossover_text
                from alray.report.crossover import as_json

                made = map_report(
                    spec,
                    texts,
                    links=links,
                    devices=devices or (),
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
            allowing = ("--allow-code",) if allow_code else ()
            streams.put(crossover_text(made, command=["alray", "run", str(spec), *allowing], page=streams.page))
            streams.fields([("page", shown(page)), ("every way", shown(made.ways_file(files)))])
            return
        if output is not None:
            raise RequestError("a map alone takes this option", key="--output", hint="add --map")
        if len(links) > 1:
            raise RequestError("several links are of a map", key="--link", hint="give one, or add --map")
        from alray.api.plans import with_machines

        given = with_machines(spec, texts, on=on, link=next(iter(links), None), within=within, costs=costs)
        if compare or devices is not None:
            if svg is not None:
                raise RequestError(
                    "a comparison has no single schedule to draw", key="--svg", hint="leave out --compare or --svg"
                )
            _put_ways(streams, spec, given, devices, probe=probe, allow_code=allow_code)
            return
        with reading(streams, spec) as display:
            from alray.orchestrate import plan_spec
            from alray.runtime.options import Options

            options = Options(allow_code=allow_code)
            workload, planned = plan_spec(spec, given, probe=probe, options=options, observer=display)
        if svg is not None:
            from alray.report.lanes import whole
            from alray.report.schedule_figure import schedule_figure
            from alray.report.timeline import predicted_lanes

            view = whole(predicted_lanes(planned, min(_DRAWN, planned.total_steps or _DRAWN)))
            drawing = schedule_figure({"predicted": view}, planned).svg
            with writing(svg):
                svg.write_text(drawing, encoding="utf-8")
        if json:
            streams.answer(planned.as_json())
            return
        from alray.cli.plan_text import plan_text

        streams.put(plan_text(planned, name=workload.spec.name, page=streams.page))
        if svg is not None:
            streams.fields([("drawn in", shown(svg))])


def _put_ways(
    streams: Terminal, spec: Path, given: list[str], devices: str | None, *, probe: bool, allow_code: bool
) -> None:
    """All ways here, or on devices elsewhere. Exits with 1 if nothing fits."""
    from alray.cli.ways_text import fitting_text

    with reading(streams, spec) as display:
        from alray.runtime.options import Options
        from alray.runtime.planner.fitting import fit_spec

        found = fit_spec(spec, given, devices, probe=probe, options=Options(allow_code=allow_code), teller=display)
    if streams.as_json:
        streams.answer(found.as_json())
    else:
        allowing = ("--allow-code",) if allow_code else ()
        streams.put(fitting_text(found, command=["alray", "run", str(spec), *allowing], page=streams.page))
    if found.best is None:
        raise typer.Exit(1)


def probe(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the costs into this JSON file."),
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
        streams.put(f"{heading}\n\n{page.table(_costs_table(costs))}")
        if output is not None:
            streams.fields([("written to", shown(output))])


def _costs_table(costs: Costs) -> Table:
    return Table(
        ("component", "name", "F", "B", "U", "parameters"),
        tuple(
            (
                str(index),
                each.name,
                *map(seconds, (each.forward_s, each.backward_s, each.update_s)),
                f"{each.parameters:,}",
            )
            for index, each in enumerate(costs.components)
        ),
    )
