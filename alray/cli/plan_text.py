"""A plan in the terminal: tables and the predicted figures."""

from __future__ import annotations

from alray.api.console.layout import Page
from alray.core.counting import counted
from alray.core.run_folder.records import Summary
from alray.planning.prediction.basis import basis_of
from alray.planning.prediction.plan import EdgePlan, Plan, StagePlan
from alray.planning.schedules.table import SCHEDULES
from alray.report.definitions import definition
from alray.report.table import Table
from alray.report.text import seconds, seconds_range, share, size

_MEMORY = {
    "parameters": ("parameters",),
    "gradients": ("gradients",),
    "optimizer": ("optimizer",),
    "activations": ("activations", "temporary"),
    "channel": ("channel", "batch"),
    "snapshot": ("snapshot",),
    "total": ("total",),
}
"""Column -> the parts of a stage's memory whose sum it shows."""


def plan_text(plan: Plan, *, name: str, page: Page) -> str:
    """A plan."""
    heading = page.heading(f"{name}: {plan.method}, {plan.schedule_name}, {_stages(plan)}{_where(plan)}")
    tables = (page.table(_times(plan)), page.table(_memory(plan)))
    return "\n\n".join([f"{heading}\n{_basis(plan, page)}", *tables, page.fields(_figures(plan))])


def _stages(plan: Plan) -> str:
    stages = f"{counted(plan.stages, 'stage')}, partition {list(plan.partition)}"
    return f"{stages}, {counted(plan.replicas, 'replica')}" if plan.replicas > 1 else stages


def _where(plan: Plan) -> str:
    return "" if plan.machines is None else f", on {plan.machines}"


def _basis(plan: Plan, page: Page) -> str:
    """What the plan is made from: its costs, and the sizes of data that are not there."""
    said = list(plan.basis.values()) if plan.machines is not None else [basis_of(plan.costs)["times"]]
    return "\n".join(page.sentence(note) for note in (*said, plan.assumed) if note is not None)


def _times(plan: Plan) -> Table:
    data = plan.costs.data_s > 0  # an estimate does not know it
    shown = {
        **({"data": "data_s"} if data else {}),
        "F": "forward_s",
        "B": "backward_s",
        "U": "update_s",
        **({"averages": "averages_s"} if plan.replicas > 1 else {}),
    }
    rows = []
    for stage in plan.stage_plans:
        parts = [getattr(stage, name) for name in shown.values()]
        rows.append((str(stage.stage), _components(stage), *map(seconds, (*parts, sum(parts)))))
    return Table(("stage", "components", *shown, "sum"), tuple(rows))


def _memory(plan: Plan) -> Table:
    rows = []
    for stage in plan.stage_plans:
        sums = (sum(getattr(stage.memory, f"{part}_bytes") for part in parts) for parts in _MEMORY.values())
        rows.append((str(stage.stage), *(size(nbytes) for nbytes in sums)))
    return Table(("stage", *_MEMORY), tuple(rows))


def _figures(plan: Plan) -> list[tuple[str, str]]:
    estimated = " (estimated)" if plan.costs.source == "estimated" else ""
    step_s = plan.predicted_step_time_s
    if plan.predicted_step_range_s is not None:
        least_s, most_s = plan.predicted_step_range_s
        known = "links decide it"
        if seconds(least_s) != seconds(most_s):
            known = f"{seconds_range(plan.predicted_step_range_s)} as far as is known"
        estimated = f"; {known}"
    rows = [
        ("step", f"{seconds(step_s)} a mini-batch{estimated}"),
        ("epoch", f"{seconds(step_s * plan.steps_per_epoch)} for {counted(plan.steps_per_epoch, 'mini-batch')}"),
    ]
    if plan.total_steps is not None:
        rows.append(("run", f"{seconds(step_s * plan.total_steps)} for {counted(plan.total_steps, 'mini-batch')}"))
    rows += [
        ("evaluation", f"{seconds(plan.evaluation_s)} each, in addition"),
        ("bubble", share(plan.predicted_bubble)),
        ("memory", definition(Summary, "predicted_memory_bytes")),
        *([("too large", plan.too_large)] if plan.too_large is not None else []),
        ("bound", seconds(plan.bound_s)),
        ("limited by", plan.limited_by),
    ]
    # The room of a pipeline follows from its lists.
    room = "" if SCHEDULES[plan.schedule].is_pipeline else f", {plan.in_flight} in flight"
    rows += [(f"edge {edge.edge}", f"{_bytes_of(edge)}{room}") for edge in plan.edges]
    return rows


def _bytes_of(edge: EdgePlan) -> str:
    whole = edge.uncompressed_bytes_per_step
    before = "" if whole is None else f", {size(whole)} without compression"
    return f"{size(edge.bytes_per_step)} a mini-batch{before}"


def _components(stage: StagePlan) -> str:
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in stage.runs)
