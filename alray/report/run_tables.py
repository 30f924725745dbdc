"""The tables of a run: its plan, its edges, its attempts and events.

The docstring of each function is what the page says of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from alray.core.counting import counted
from alray.core.run_folder.records import AttemptSummary, CheckpointRecord, EngineName, EventRecord, Figures
from alray.planning.prediction.plan import StagePlan
from alray.planning.schedules.table import SCHEDULES
from alray.report.definitions import of_summary
from alray.report.figure import Exhibit, Show
from alray.report.folder import RunFolder
from alray.report.table import Table
from alray.report.text import number, seconds, share, size

ENGINES: dict[EngineName, str] = {
    "ray": "Ray actors",
    "ray_train": "Ray Train with torch's DDP",
    "inline": "in one process (inline)",
}
_ATTEMPT_HEAD = ("mini-batches", "engine", "schedule", "step time", "predicted", "bubble", "samples/s")


class MeasuredRun(NamedTuple):
    """A run and its figures."""

    run: RunFolder
    figures: Figures


def the_plan(shown: MeasuredRun) -> Exhibit:
    """The components of each stage, the memory that its tensors need by the plan, and that which its process took."""
    run, figures = shown
    plan = run.plan
    rows = [
        (f"stage {stage.stage}", _components(run, stage), size(predicted), size(peak))
        for stage, predicted, peak in zip(
            plan.stage_plans, figures.predicted_memory_bytes, figures.peak_memory_bytes, strict=True
        )
    ]
    found = [
        plan.limited_by,
        f"No step is below {seconds(plan.bound_s)} with these costs; predicted step "
        f"{seconds(plan.predicted_step_time_s)}, measured {seconds(figures.step_time_s)}.",
    ]
    # The edges of a pipeline have room for every micro-batch.
    if plan.edges and not SCHEDULES[plan.schedule].is_pipeline:
        found.append(f"At most {counted(plan.in_flight, 'mini-batch')} wait on an edge.")
    memory = of_summary(predicted_memory_bytes="predicted memory", peak_memory_bytes="peak memory")
    table = Table(("stage", "components", "predicted memory", "peak memory"), tuple(rows))
    return Exhibit("The plan", findings=tuple(found), tables={"plan": table}, meanings=memory)


def edges(shown: MeasuredRun) -> Exhibit:
    """The bytes of one mini-batch by the plan, and what was sent in total: over every attempt and replica, evaluations
    included. Lost work is left out. Where messages are compressed, also what it would be without."""
    run, figures = shown
    predicted = {edge.edge: edge.bytes_per_step for edge in run.plan.edges}
    # Earlier attempts may have had other stages. Messages of an evaluation also go down.
    names = dict.fromkeys([*predicted, *figures.bytes_sent])
    if not names:
        return Exhibit("Bytes per edge", findings=("One stage: nothing was sent.",))
    columns: dict[str, Mapping[str, int] | Mapping[str, int | None]] = {
        "predicted per mini-batch": predicted,
        "sent in total": figures.bytes_sent,
    }
    if figures.uncompressed_bytes is not None:
        whole = {edge.edge: edge.uncompressed_bytes_per_step for edge in run.plan.edges}
        columns |= {"uncompressed per mini-batch": whole, "uncompressed in total": figures.uncompressed_bytes}
    rows = tuple((name, *(size(column.get(name)) for column in columns.values())) for name in names)
    return Exhibit("Bytes per edge", tables={"bytes_per_edge": Table(("edge", *columns), rows)})


def attempts(shown: MeasuredRun) -> Exhibit | None:
    """An attempt begins with a start or a resume. The figures at the top of the page are those of the last plan."""
    figures = shown.figures
    if len(figures.attempts) < 2:
        return None
    table = Table(_ATTEMPT_HEAD, tuple(tuple(_attempt_row(attempt)) for attempt in figures.attempts))
    return Exhibit("Attempts", tables={"attempts": table})


def events(shown: MeasuredRun) -> Exhibit:
    """The events of the run. Source: records.jsonl."""
    run = shown.run
    events = [record for record in run.records if isinstance(record, EventRecord)]
    checkpoints = [record for record in run.records if isinstance(record, CheckpointRecord)]
    finding = "No checkpoint was written."
    if checkpoints:
        last = checkpoints[-1]
        finding = f"{counted(len(checkpoints), 'checkpoint')} written, the last after {last.step:,} mini-batches "
        finding += f"({size(last.bytes)} in {seconds(last.duration_s)})."
    rows = tuple(
        (event.event, seconds(event.time_s), number(event.step), _stage_text(event), event.message) for event in events
    )
    table = Table(("event", "time", "mini-batches", "where", "message"), rows)
    return Exhibit("Events and failures", findings=(finding,), tables={"events": table} if rows else {})


def _stage_text(event: EventRecord) -> str:
    replica = f", replica {event.replica}" if event.replica else ""
    return "" if event.stage is None else f"stage {event.stage}{replica}"


def _attempt_row(attempt: AttemptSummary) -> list[str]:
    return [
        f"{attempt.began_after:,} to {attempt.ended_after:,}",
        ENGINES[attempt.engine] if attempt.engine else "",
        f"{attempt.schedule} {attempt.partition}" + (f" x {attempt.replicas}" if attempt.replicas > 1 else ""),
        seconds(attempt.step_time_s),
        seconds(attempt.predicted_step_time_s),
        share(attempt.bubble),
        number(attempt.samples_per_s),
    ]


def _components(run: RunFolder, stage: StagePlan) -> str:
    return ", ".join(f"{index} {run.plan.costs.components[index].name}" for index in stage.components)


TABLES: tuple[Show[MeasuredRun], ...] = (the_plan, edges, attempts, events)
"""In the order of the page."""
