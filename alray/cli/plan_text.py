"""A plan in the terminal: tables, a chart of the first mini-batches, and the predicted figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from alray.cli.terminal import rows_text
from alray.plan.compare import Alternative
from alray.plan.plan import Plan, StagePlan
from alray.plan.timeline import TimedAction
from alray.report.schedule_chart import chart_text
from alray.report.text import counted, seconds, share, size
from alray.schedules.table import SCHEDULES

NUM_DRAWN = 6
"""Mini-batches in the chart: enough to see the pipeline fill and reach its steady state."""

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
_STYLES = {
    "F": "blue",
    "L": "cyan",
    "B": "dark_orange3",
    "U": "green",
    "E": "purple",
    "D": "magenta",
    "I": "dark_goldenrod",
    "G": "red",
    ">": "bright_black",
}
_MARGIN = 9  # characters of `stage 0  ` before the time axis
_WIDEST = 160


def print_plan(plan: Plan, bars: Sequence[TimedAction], *, name: str, stream: TextIO) -> None:
    """Print a plan. bars: the predicted actions of its first mini-batches."""
    console = Console(file=stream, highlight=False)
    console.print(Text(f"{name}: {plan.method}, {plan.schedule}, {_stages(plan)}", style="bold"), soft_wrap=True)
    console.print(Text(_source(plan)), soft_wrap=True)
    console.print()
    console.print(_times(plan))
    console.print()
    console.print(_memory(plan))
    console.print()
    width = max(40, min(console.width, _WIDEST) - _MARGIN - 1)
    console.print(_coloured(chart_text(bars, width=width)), soft_wrap=True, end="")
    console.print()
    console.print(Text(_figures(plan)), soft_wrap=True)


def print_comparison(plan: Plan, rows: Sequence[Alternative], *, name: str, stream: TextIO) -> None:
    """Print a table of the schedules and numbers of stages compared with `plan`; a star marks the row of `plan`."""
    console = Console(file=stream, highlight=False)
    console.print(Text(f"{name}: {plan.method}, each row with `partition: auto`", style="bold"), soft_wrap=True)
    console.print(Text(_source(plan)), soft_wrap=True)
    console.print()
    in_parts = any(row.micro_batches > 1 for row in rows)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("schedule", no_wrap=True)
    for heading in ("stages", "partition", *(("micro-batches",) if in_parts else ()), "step", "bubble", "bound"):
        table.add_column(heading, justify="right")
    table.add_column("memory", justify="right")
    own = Alternative.of_plan(plan)
    for row in rows:
        if row.partition is None or row.peak_memory_bytes is None:
            continue
        table.add_row(
            "*" if row == own else "",
            row.schedule,
            str(row.stages),
            ", ".join(map(str, row.partition)),
            *((str(row.micro_batches),) if in_parts else ()),
            seconds(row.predicted_step_time_s),
            share(row.predicted_bubble),
            seconds(row.bound_s),
            size(max(row.peak_memory_bytes)),
        )
    console.print(table)
    console.print()
    for row in rows:
        if row.refused is not None:
            where = f"{row.schedule} on {counted(row.stages, 'stage')}"
            console.print(Text(f"{where} cannot run: {row.refused}"), soft_wrap=True)
    starred = "* the schedule and stages of this spec; " if own in rows else ""
    console.print(Text(f"{starred}memory is that of the stage that needs the most"), soft_wrap=True)


def _stages(plan: Plan) -> str:
    stages = f"{counted(plan.stages, 'stage')}, partition {list(plan.partition)}"
    return f"{stages}, {counted(plan.replicas, 'replica')}" if plan.replicas > 1 else stages


def _source(plan: Plan) -> str:
    """Where the costs come from, so that an estimate is not taken for a measurement."""
    costs = plan.costs
    threads = counted(costs.threads, "thread")
    return {
        "probe": f"costs measured on this machine, {costs.device}, {threads}, {costs.batch_size} samples a mini-batch",
        "estimated": f"costs estimated by counting, for {costs.batch_size} samples a mini-batch; --probe measures them",
        "given": f"costs given in the spec; memory and messages estimated, for {costs.batch_size} samples a mini-batch",
    }[costs.source]


def _times(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("stage", "components", "F", "B", "U", "F+B+U"):
        table.add_column(heading, justify="right")
    for stage in plan.stage_plans:
        parts = (stage.forward_s, stage.backward_s, stage.update_s)
        table.add_row(str(stage.stage), _components(stage), *(seconds(part) for part in (*parts, sum(parts))))
    return table


def _memory(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("stage", justify="right")
    for heading in _MEMORY:
        table.add_column(heading, justify="right")
    for stage in plan.stage_plans:
        sums = (sum(getattr(stage.memory, f"{part}_bytes") for part in parts) for parts in _MEMORY.values())
        table.add_row(str(stage.stage), *(size(nbytes) for nbytes in sums))
    return table


def _figures(plan: Plan) -> str:
    estimated = " (estimated)" if plan.costs.source == "estimated" else ""
    step_s = plan.predicted_step_time_s
    rows = [
        ("step", f"{seconds(step_s)} a mini-batch{estimated}"),
        ("epoch", f"{seconds(step_s * plan.steps_per_epoch)} for {counted(plan.steps_per_epoch, 'mini-batch')}"),
    ]
    if plan.total_steps is not None:
        rows.append(("run", f"{seconds(step_s * plan.total_steps)} for {counted(plan.total_steps, 'mini-batch')}"))
    rows += [
        ("evaluation", f"{seconds(plan.evaluation_s)} each, in addition"),
        ("bubble", share(plan.predicted_bubble)),
        ("bound", f"{seconds(plan.bound_s)}, {plan.bound}"),
        ("limited by", plan.limited_by),
    ]
    # The edges of a pipeline have room for every micro-batch.
    room = "" if SCHEDULES[plan.schedule].is_pipeline else f", {plan.in_flight} in flight"
    rows += [(f"edge {edge.edge}", f"{size(edge.bytes_per_step)} a mini-batch{room}") for edge in plan.edges]
    return rows_text(rows)


def _components(stage: StagePlan) -> str:
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in stage.runs)


def _coloured(chart: str) -> Text:
    """The chart with each bar in the colour of its kind. A bar is a letter, its mini-batch and dashes up to its end."""
    text = Text(chart)
    for line in re.finditer(r"^stage \d+ +(.*)$", chart, re.MULTILINE):
        for bar in re.finditer(rf"([{''.join(_STYLES)}])\d*(?:\.\d+)?-*", line.group(1)):
            start = line.start(1)
            text.stylize(_STYLES[bar.group(1)], start + bar.start(), start + bar.end())
    return text
