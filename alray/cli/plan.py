"""`alray plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from alray.api.console.layout import unbroken
from alray.cli.options import AllowCode, CostsFile, Json, Link, On, Overrides, Probe, SpecFile, Within
from alray.cli.terminal import reading, shown, terminal, writing
from alray.core.errors import RequestError

_DRAWN = 6
"""Mini-batches in a drawing: enough to see the pipeline fill and reach its steady state."""


def plan(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    on: On = None,
    link: Link = None,
    within: Within = None,
    costs: CostsFile = None,
    probe: Probe = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare every schedule on up to eight stages, or as many as devices.")
    ] = False,
    allow_code: AllowCode = False,
    json: Json = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the schedule into this SVG file.", show_default=False)
    ] = None,
) -> None:
    """Show how a spec would run, without running it: here, or on machines that are not here.

    Prints partition, schedule, predicted step time, bubble, memory and messages, and where its figures come from.
    """
    with terminal(as_json=json) as streams:
        if compare and svg is not None:
            raise RequestError(
                "a comparison has no single schedule to draw", key="--svg", hint="leave out --compare or --svg"
            )
        from alray.api.plans import with_machines

        given = with_machines(spec, overrides or [], on=on, link=link, within=within, costs=costs)
        with reading(streams, spec) as display:
            from alray.orchestrate import compare_spec, plan_spec
            from alray.runtime.options import Options

            options = Options(allow_code=allow_code)
            if compare:
                workload, planned, rows = compare_spec(spec, given, probe=probe, options=options, observer=display)
            else:
                workload, planned = plan_spec(spec, given, probe=probe, options=options, observer=display)
        if compare and json:
            streams.answer({"comparisons": [row.as_json() for row in rows], "basis": planned.basis})
            return
        if json and svg is None:  # nothing is drawn: of many stages that is millions of actions
            streams.answer(planned.as_json())
            return
        from alray.cli.plan_text import comparison_text, plan_text

        if compare:
            streams.put(comparison_text(planned, rows, name=workload.spec.name, page=streams.page))
            return
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
        streams.put(plan_text(planned, name=workload.spec.name, page=streams.page))
        if svg is not None:
            streams.fields([("drawn in", unbroken(shown(svg)))])
