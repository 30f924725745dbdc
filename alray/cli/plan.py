"""`alray plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alray.api.console.layout import unbroken
from alray.cli.options import AllowCode, Json, Overrides, Probe, SpecFile
from alray.cli.terminal import Terminal, shown, terminal, writing
from alray.core.errors import RequestError

if TYPE_CHECKING:
    from alray.config.sections.spec import Spec
    from alray.planning.prediction.plan import Plan

_MOST_COMPARED = 8
"""A comparison covers 1 to this many stages, and the number that the spec asks for."""


def plan(
    spec: SpecFile,
    overrides: Overrides = None,
    *,
    probe: Probe = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Compare every schedule on every number of stages.")
    ] = False,
    allow_code: AllowCode = False,
    json: Json = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw the schedule into this SVG file.", show_default=False)
    ] = None,
) -> None:
    """Show how a spec would run, without running it.

    Prints partition, schedule, predicted step time, bubble, memory and messages.
    """
    given = overrides or []
    with terminal(as_json=json) as streams:
        if compare and svg is not None:
            raise RequestError(
                "a comparison has no single schedule to draw", key="--svg", hint="leave out --compare or --svg"
            )
        from alray.api.console.interrupts import Interrupts
        from alray.cli.event_lines import display_on

        with display_on(streams, Interrupts()) as display:
            display.doing(f"reading {spec}")
            from alray.orchestrate import plan_spec
            from alray.runtime.options import Options

            options = Options(allow_code=allow_code)
            workload, planned = plan_spec(spec, given, probe=probe, options=options, observer=display)
        from alray.cli.plan_text import NUM_DRAWN, plan_text
        from alray.report.lanes import whole
        from alray.report.timeline import predicted_lanes

        if compare:
            _compare(planned, workload.spec, streams)
            return
        view = whole(predicted_lanes(planned, min(NUM_DRAWN, planned.total_steps or NUM_DRAWN)))
        if svg is not None:
            from alray.report.schedule_figure import schedule_figure

            drawing = schedule_figure({"predicted": view}, planned).svg
            with writing(svg):
                svg.write_text(drawing, encoding="utf-8")
        if json:
            streams.answer(planned.as_json())
            return
        streams.put(plan_text(planned, view, name=workload.spec.name, page=streams.page))
        if svg is not None:
            streams.fields([("drawn in", unbroken(shown(svg)))])


def _compare(planned: Plan, spec: Spec, streams: Terminal) -> None:
    """Print every schedule of the method on every number of stages, as a table or as one object."""
    from alray.cli.plan_text import comparison_text
    from alray.planning.prediction.compare import compare_plans
    from alray.planning.schedules.table import SCHEDULES
    from alray.runtime.planner.stage_devices import StageDevices, stage_links

    most = min(len(planned.costs.components), _MOST_COMPARED)
    rows = compare_plans(
        method=planned.method,
        local_losses=spec.method.local_losses,
        costs=planned.costs,
        stages=sorted({*range(1, most + 1), planned.stages}),
        in_flight=planned.in_flight,
        micro_batches=None if spec.pipeline.micro_batches is None else planned.micro_batches,
        virtual_stages=spec.pipeline.virtual_stages,
        replicas=planned.replicas,
        cores=planned.cores,
        stage_speed=None if spec.resources.stage_speed == "auto" else spec.resources.stage_speed,
        links_of=lambda stages: stage_links(spec, stages, StageDevices()),
        besides=None if planned.schedule in SCHEDULES else planned.schedule,
    )
    if streams.as_json:
        streams.answer({"comparisons": [row.as_json() for row in rows]})
    else:
        streams.put(comparison_text(planned, rows, name=spec.name, page=streams.page))
