"""The parts of the page on how the pipeline ran: time, plan, edges, events, environment, spec."""

from __future__ import annotations

from html import escape
from typing import Any

from alray.plan.plan import StagePlan
from alray.records import CheckpointRecord, EvaluationRecord, EventRecord, StageRecord
from alray.report.attempts import split_attempts
from alray.report.bars import Bar, stacked_bars
from alray.report.folder import RunFolder
from alray.report.summary import Figures
from alray.report.text import Markup, milliseconds, seconds, size, table
from alray.schedules.table import SCHEDULES

_PARTS = ("data", "forward", "backward", "update", "other computing", "send wait", "receive wait", "idle")
_CLASSES = ("data", "forward", "backward", "update", "other", "send", "receive", "idle")
_NAMED = ("data", "forward", "backward", "update")  # parts of what a stage computes


def stage_time(run: RunFolder) -> str:
    """Where each stage's time went, as shares of its wall time."""
    heading = "<h2>Where the time of each stage went</h2>"
    timed = _timed(run)
    if not timed:
        return f'{heading}<p class="none">No mini-batch after warm-up was measured.</p>'
    bars = []
    for stage in range(run.plan.stages):
        own = [record for record in timed if record.stage == stage]
        named = [sum(getattr(record, f"{part}_s") for record in own) for part in _NAMED]
        other = max(0.0, sum(record.compute_s for record in own) - sum(named))
        waits = [sum(getattr(record, f"{part}_s") for record in own) for part in ("send_wait", "receive_wait", "idle")]
        bars.append(Bar(f"stage {stage}", (*named, other, *waits)))
    evaluation = sum(record.duration_s for record in run.kept if isinstance(record, EvaluationRecord))
    return (
        heading
        + stacked_bars(bars, parts=_PARTS, classes=_CLASSES, title="Share of a stage's wall time")
        + '<p class="note">Mini-batches after warm-up, all replicas; evaluation '
        f"({seconds(evaluation)} in all) and checkpoints are not in this time. "
        "Data is what stage 0 takes to get mini-batches ready.</p>"
    )


def plan_table(run: RunFolder, figures: Figures) -> str:
    """Per stage: its components, times of a mini-batch and memory, both predicted and measured."""
    plan = run.plan
    pipeline = SCHEDULES[plan.schedule].is_pipeline  # its edges have room for every micro-batch
    timed = _timed(run)
    rows = []
    for stage in plan.stage_plans:
        own = [record for record in timed if record.stage == stage.stage]
        num_steps = sum(record.steps for record in own)
        row: list[str] = [str(stage.stage), _components(run, stage)]
        for part in ("forward", "backward", "update"):
            measured = sum(getattr(record, f"{part}_s") for record in own) / num_steps if num_steps else None
            row += [milliseconds(getattr(stage, f"{part}_s")), milliseconds(measured)]
        row += [size(stage.memory.total_bytes), size(figures.peak_memory_bytes[stage.stage])]
        rows.append(row)
    head = ["stage", "components", "F ms", "measured", "B ms", "measured", "U ms", "measured"]
    head += ["memory predicted", "measured peak"]
    costs = {
        "probe": "measured by a probe",
        "estimated": "estimated by counting",
        "given": "given by the spec",
    }
    return (
        f"<h2>The plan</h2><p>{escape(plan.limited_by)}</p>"
        f"{table(head, rows, long=(1,))}"
        '<p class="note">F forward, B backward, U update, of one mini-batch of '
        f"{plan.costs.batch_size} samples on {escape(plan.costs.device)}, "
        f"{plan.costs.threads} thread{'s' if plan.costs.threads > 1 else ''} a stage; "
        f"costs {costs[plan.costs.source]}. Bound of this schedule: {escape(plan.bound)} = "
        f"{seconds(plan.bound_s)}; predicted step {seconds(plan.predicted_step_time_s)}, "
        f"measured {seconds(figures.step_time_s)}."
        + (f" At most {plan.in_flight} mini-batches wait on an edge." if plan.edges and not pipeline else "")
        + "</p>"
    )


def edges(run: RunFolder, figures: Figures) -> str:
    """Bytes over each edge: predicted per mini-batch, and all that was sent."""
    predicted = {edge.edge: edge.bytes_per_step for edge in run.plan.edges}
    # Earlier attempts may have had other stages, and messages of an evaluation also go down.
    names = list(dict.fromkeys([*predicted, *figures.bytes_sent]))
    if not names:
        return '<h2>Bytes per edge</h2><p class="none">One stage: nothing was sent.</p>'
    rows = [[name, size(predicted.get(name)), size(figures.bytes_sent.get(name))] for name in names]
    return (
        f"<h2>Bytes per edge</h2>{table(['edge', 'predicted per mini-batch', 'sent in all'], rows)}"
        '<p class="note">Sent in all: over every attempt and replica, evaluations and lost work included.</p>'
    )


def events(run: RunFolder) -> str:
    """What happened to the run, and the checkpoints it wrote."""
    rows = [
        [
            seconds(record.time_s),
            f"{record.step:,}",
            Markup(f'<span class="status {record.event}">{record.event}</span>')
            if record.event in ("failed", "interrupted", "finished")
            else record.event,
            _where(record),
            record.message,
        ]
        for record in run.records
        if isinstance(record, EventRecord)
    ]
    written = [record for record in run.records if isinstance(record, CheckpointRecord)]
    said = (
        f"{len(written)} checkpoint{'s' if len(written) > 1 else ''} written, the last after "
        f"{written[-1].step:,} mini-batches ({size(written[-1].bytes)} in {seconds(written[-1].duration_s)})."
        if written
        else "No checkpoint was written."
    )
    listed = table(["time", "mini-batches", "event", "where", "message"], rows, long=(4,)) if rows else ""
    return f"<h2>Events and failures</h2>{listed}<p class='note'>{said}</p>"


def environment(run: RunFolder) -> str:
    """Versions and the machine, as recorded when the run was started."""
    if run.environment is None:
        return '<h2>Environment</h2><p class="none">The run folder has no environment.json.</p>'
    rows = [[key, value] for key, value in _flat(run.environment)]
    return f"<h2>Environment</h2>{table(['what', 'value'], rows, long=(1,))}"


def spec(run: RunFolder) -> str:
    """The spec the run was made from, every default filled in."""
    return f"<h2>The spec</h2><pre>{escape(run.spec_text)}</pre>"


def _timed(run: RunFolder) -> list[StageRecord]:
    """Stage records after warm-up of the attempts that ran with the plan of the page."""
    return [
        record
        for attempt in split_attempts(run.kept)
        if attempt.ran(run.plan)
        for record in attempt.stage_records
        if not record.warm_up
    ]


def _components(run: RunFolder, stage: StagePlan) -> str:
    return ", ".join(f"{index} {run.plan.costs.components[index].name}" for index in stage.components)


def _where(record: EventRecord) -> str:
    if record.stage is None:
        return ""
    return f"stage {record.stage}" + (f", replica {record.replica}" if record.replica else "")


def _flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested keys joined with dots, lists with commas."""
    rows: list[tuple[str, str]] = []
    for key, entry in value.items():
        if isinstance(entry, dict):
            rows += _flat(entry, f"{prefix}{key}.")
        elif isinstance(entry, list):
            rows.append((f"{prefix}{key}", ", ".join(str(item) for item in entry) or "none"))
        else:
            rows.append((f"{prefix}{key}", "" if entry is None else str(entry)))
    return rows
