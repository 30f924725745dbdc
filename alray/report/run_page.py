"""The report page of one run: what `templates/run.html` shows, computed from the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alray.plan.plan import StagePlan
from alray.records import (
    AttemptSummary,
    CheckpointRecord,
    EngineName,
    EvaluationRecord,
    EventRecord,
    Record,
    StageRecord,
    StepRecord,
)
from alray.report.attempts import timed_records
from alray.report.charts import Curve, LineChart, Point, StackedBars, line_chart
from alray.report.definitions import NO_BUBBLE, of_summary
from alray.report.folder import RunFolder
from alray.report.html import render
from alray.report.lanes import View, steady, whole
from alray.report.schedule_chart import ScheduleChart, schedule_chart
from alray.report.single_step import COLUMNS, HEAD, rows_of, single_step
from alray.report.summary import Figures, figures_of
from alray.report.text import accuracy, counted, number, seconds, share, size
from alray.report.timeline import measured_last, predicted_lanes, predicted_steady
from alray.schedules.table import SCHEDULES
from alray.stage.clock import WARM_UP_STEPS
from alray.store import has_checkpoint

NUM_DRAWN = 6  # mini-batches in the drawing of the schedule; with more it would be too narrow to read

_STEPS = "mini-batches completed"
_ENGINES: dict[EngineName, str] = {
    "ray": "Ray actors",
    "ray_train": "Ray Train with torch's DDP",
    "inline": "in one process (inline)",
}
_SOURCES = {
    "probe": "measured by a probe",
    "estimated": "estimated by counting",
    "given": "given by the spec",
}
_COMPUTED = ("data", "forward", "backward", "update")  # named parts of the time in which a stage computes
_WAITED = ("send_wait", "receive_wait", "idle")
_ATTEMPT_HEAD = ("mini-batches", "engine", "schedule", "step time", "predicted", "bubble", "samples/s")
_PARTS = {part: part for part in _COMPUTED} | {"other computing": "other"}
_PARTS |= {"send wait": "send", "receive wait": "receive", "idle": "idle"}


def run_page(run: RunFolder) -> str:
    """The HTML page of a run."""
    figures = figures_of(run.records, run.plan)
    evaluations = [record for record in run.kept if isinstance(record, EvaluationRecord)]
    timed = timed_records(run.kept, run.plan)
    return render(
        "run.html",
        title=f"{run.name} · alray report",
        run=run,
        plan=run.plan,
        figures=figures,
        facts=_facts(run, figures),
        tiles=_tiles(run, figures, evaluations),
        tile_definitions=of_summary(
            samples_per_s="Samples per second",
            step_time_s="Step time",
            bubble="Bubble",
            duration_s="Duration",
            peak_memory_bytes="Peak memory",
        ),
        loss_charts=_loss_charts(run.kept),
        accuracy_chart=line_chart(accuracy_curves(run.kept), title="Accuracy", y_label="accuracy", x_label=_STEPS),
        last=evaluations[-1] if evaluations else None,
        schedule=_schedule(run),
        single_step_head=["", "", *HEAD],
        single_step_rows=rows_of((row.label, row) for row in single_step(run.kept, run.plan).rows),
        single_step_definitions=COLUMNS,
        stage_time=_stage_time(timed, run.plan.stages),
        evaluation_s=sum(record.duration_s for record in evaluations),
        plan_rows=_plan_rows(run, figures),
        memory_definitions=of_summary(predicted_memory_bytes="Predicted memory", peak_memory_bytes="Peak memory"),
        costs_source=_SOURCES[run.plan.costs.source],
        # The edges of a pipeline have room for every micro-batch.
        has_limited_edges=bool(run.plan.edges) and not SCHEDULES[run.plan.schedule].is_pipeline,
        edge_rows=_edge_rows(run, figures),
        attempt_head=_ATTEMPT_HEAD,
        attempt_rows=[_attempt_row(attempt) for attempt in figures.attempts],
        events=[record for record in run.records if isinstance(record, EventRecord)],
        checkpoints=[record for record in run.records if isinstance(record, CheckpointRecord)],
        environment=None if run.environment is None else _flat(run.environment),
    )


def loss_curves(records: Sequence[Record]) -> dict[str, list[Curve]]:
    """The curves of each loss, by its name: one for each component that has this loss. Components count from 0."""
    points: dict[str, dict[int, list[Point]]] = {}
    for record in records:
        if not isinstance(record, StepRecord):
            continue
        for component, losses in record.losses.items():
            for name, value in losses.items():
                points.setdefault(name, {}).setdefault(component, []).append((record.step, value))
    return {
        name: [Curve(f"component {component}", tuple(of[component])) for component in sorted(of)]
        for name, of in sorted(points.items())
    }


def accuracy_curves(records: Sequence[Record]) -> list[Curve]:
    """One curve of accuracy for each of the training, validation and test sets that was measured."""
    evaluations = [record for record in records if isinstance(record, EvaluationRecord)]
    curves = []
    for split in ("train", "validation", "test"):
        measured = [(float(record.step), getattr(record, split)) for record in evaluations]
        points = tuple((step, value) for step, value in measured if value is not None)
        if points:
            curves.append(Curve(split, points))
    return curves


def _loss_charts(records: Sequence[Record]) -> list[LineChart]:
    label = "loss of a mini-batch"
    return [
        line_chart(curves, title=f"{name.replace('_', ' ')} loss", y_label=label, x_label=_STEPS, logarithmic=True)
        for name, curves in loss_curves(records).items()
    ]


def _facts(run: RunFolder, figures: Figures) -> list[str]:
    """What ran, in a few phrases."""
    replicas = f" by {figures.replicas} replicas" if figures.replicas > 1 else ""
    facts = [
        f"{figures.method.replace('_', ' ')}, schedule {figures.schedule}",
        counted(figures.stages, "stage") + replicas,
        f"partition {figures.partition}",
    ]
    return [*facts, f"seed {run.summary.seed}", _ENGINES[run.summary.engine]] if run.summary else facts


def _tiles(run: RunFolder, figures: Figures, evaluations: Sequence[EvaluationRecord]) -> list[tuple[str, str, str]]:
    """The most important figures: name, value and what belongs to it."""
    test, of_test = None, "not evaluated"
    if evaluations:
        last = evaluations[-1]
        of = "of the final weights" if last.step == figures.steps else f"after {last.step:,} mini-batches"
        test, of_test = last.test, f"{of}; validation {accuracy(last.validation)}"
    best, of_best = None, "no validation accuracy was measured"
    if figures.best:
        best = figures.best.validation
        of_best = f"after {figures.best.step:,} mini-batches; test there {accuracy(figures.best.test)}"
        if not has_checkpoint(run.path, figures.best.step):
            of_best += "; its weights were not kept"
    predicted_bubble = NO_BUBBLE if figures.predicted_bubble is None else f"predicted {share(figures.predicted_bubble)}"
    peak = max((peak for peak in figures.peak_memory_bytes if peak is not None), default=None)
    return [
        ("Test accuracy", accuracy(test), of_test),
        ("Best validation accuracy", accuracy(best), of_best),
        ("Samples per second", number(figures.samples_per_s), "over all replicas"),
        ("Step time", seconds(figures.step_time_s), f"predicted {seconds(figures.predicted_step_time_s)}"),
        ("Bubble", share(figures.bubble), predicted_bubble),
        ("Mini-batches", number(figures.steps), f"{figures.epochs:.4g} epochs, {figures.samples:,} samples"),
        (
            "Duration",
            seconds(run.summary.duration_s if run.summary else None),
            counted(len(figures.failures), "failure"),
        ),
        ("Peak memory", size(peak), "of the largest stage"),
    ]


class DrawnSchedule(NamedTuple):
    """What the plan predicts and what the stages' clocks measured, while stage 0 did the same few mini-batches."""

    batches: range
    measured: View | None  # None if no mini-batch was traced
    chart: ScheduleChart | None  # None if no predicted action takes any time


def _schedule(run: RunFolder) -> DrawnSchedule:
    lanes = [lane for lane in measured_last(run.kept, run.plan) if lane.replica == 0]
    if lanes and (first := min(lanes[0].begins(), default=None)) is not None:
        measured, batches = steady(lanes, first + WARM_UP_STEPS, NUM_DRAWN)
        predicted = predicted_steady(run.plan, batches)
    else:
        measured, batches = None, range(min(NUM_DRAWN, run.plan.total_steps or NUM_DRAWN))
        predicted = whole(predicted_lanes(run.plan, len(batches)))
    drawn = predicted.end_s > predicted.start_s
    return DrawnSchedule(batches, measured, schedule_chart(predicted, measured) if drawn else None)


def _stage_time(timed: Sequence[StageRecord], stages: int) -> StackedBars | None:
    """How each stage spent its wall time; None without a measured mini-batch."""
    if not timed:
        return None
    bars = []
    for stage in range(stages):
        own = [record for record in timed if record.stage == stage]
        computed = [sum(getattr(record, f"{part}_s") for record in own) for part in _COMPUTED]
        other = max(0.0, sum(record.compute_s for record in own) - sum(computed))
        waited = [sum(getattr(record, f"{part}_s") for record in own) for part in _WAITED]
        bars.append((f"stage {stage}", (*computed, other, *waited)))
    return StackedBars("Share of a stage's wall time", _PARTS, tuple(bars))


def _plan_rows(run: RunFolder, figures: Figures) -> list[list[str]]:
    """For each stage: its components, the predicted memory of its tensors and the measured one of its process."""
    memory = zip(figures.predicted_memory_bytes, figures.peak_memory_bytes, strict=True)
    return [
        [str(stage.stage), _components(run, stage), size(predicted), size(measured)]
        for stage, (predicted, measured) in zip(run.plan.stage_plans, memory, strict=True)
    ]


def _edge_rows(run: RunFolder, figures: Figures) -> list[list[str]]:
    predicted = {edge.edge: edge.bytes_per_step for edge in run.plan.edges}
    # Earlier attempts may have had other stages. Messages of an evaluation also go down.
    names = dict.fromkeys([*predicted, *figures.bytes_sent])
    return [[name, size(predicted.get(name)), size(figures.bytes_sent.get(name))] for name in names]


def _attempt_row(attempt: AttemptSummary) -> list[str]:
    return [
        f"{attempt.began_after:,} to {attempt.ended_after:,}",
        _ENGINES[attempt.engine] if attempt.engine else "",
        f"{attempt.schedule} {attempt.partition}" + (f" x {attempt.replicas}" if attempt.replicas > 1 else ""),
        seconds(attempt.step_time_s),
        seconds(attempt.predicted_step_time_s),
        share(attempt.bubble),
        number(attempt.samples_per_s),
    ]


def _components(run: RunFolder, stage: StagePlan) -> str:
    return ", ".join(f"{index} {run.plan.costs.components[index].name}" for index in stage.components)


def _flat(value: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested keys joined by dots, and their values; the entries of a list are joined by commas."""
    rows: list[tuple[str, str]] = []
    for key, entry in value.items():
        if isinstance(entry, dict):
            rows += _flat(entry, f"{prefix}{key}.")
        elif isinstance(entry, list):
            rows.append((f"{prefix}{key}", ", ".join(str(item) for item in entry) or "none"))
        else:
            rows.append((f"{prefix}{key}", "" if entry is None else str(entry)))
    return rows
