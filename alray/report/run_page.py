"""The report page of one run: what `templates/run.html` shows, computed from the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alray.plan.plan import StagePlan
from alray.plan.timeline import TimedAction
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
from alray.report.folder import RunFolder
from alray.report.html import render
from alray.report.schedule_chart import ScheduleChart, schedule_chart
from alray.report.single_step import HEAD, rows_of, single_step
from alray.report.summary import Figures, figures_of
from alray.report.text import accuracy, counted, milliseconds, number, seconds, share, size
from alray.report.timeline import Lane, action_of, measured_steady, predicted_lanes, traced_batches, window
from alray.schedules.table import SCHEDULES
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
        loss_charts=_loss_charts(run.kept),
        accuracy_chart=line_chart(accuracy_curves(run.kept), title="Accuracy", y_label="accuracy", x_label=_STEPS),
        last=evaluations[-1] if evaluations else None,
        schedule=_schedule(run),
        single_step_head=["", "", *HEAD],
        single_step_rows=rows_of((row.label, row) for row in single_step(run.kept, run.plan).rows),
        stage_time=_stage_time(timed, run.plan.stages),
        evaluation_s=sum(record.duration_s for record in evaluations),
        plan_rows=_plan_rows(run, figures, timed),
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
    peak = max((peak for peak in figures.peak_memory_bytes if peak is not None), default=None)
    return [
        ("Test accuracy", accuracy(test), of_test),
        ("Best validation accuracy", accuracy(best), of_best),
        ("Samples per second", number(figures.samples_per_s), "over all replicas"),
        ("Step time", seconds(figures.step_time_s), f"predicted {seconds(figures.predicted_step_time_s)}"),
        ("Bubble", share(figures.bubble), f"predicted {share(figures.predicted_bubble)}"),
        ("Mini-batches", number(figures.steps), f"{figures.epochs:.4g} epochs, {figures.samples:,} samples"),
        (
            "Duration",
            seconds(run.summary.duration_s if run.summary else None),
            counted(len(figures.failures), "failure"),
        ),
        ("Peak memory", size(peak), "of the largest stage"),
    ]


class DrawnSchedule(NamedTuple):
    """The same few mini-batches as the plan predicts them and as the stages' clocks measured them."""

    batches: range
    measured: bool  # whether mini-batches were traced
    chart: ScheduleChart | None  # None if no predicted action takes any time


def _schedule(run: RunFolder) -> DrawnSchedule:
    lanes = [lane for lane in measured_steady(run.kept, run.plan) if lane.replica == 0]
    traced = traced_batches(lanes, NUM_DRAWN)
    batches = traced or range(min(NUM_DRAWN, run.plan.total_steps or NUM_DRAWN))
    # The neighbours of these mini-batches run on other stages at the same time.
    first = max(0, batches.start - run.plan.stages)
    around = predicted_lanes(run.plan, first, batches.stop + run.plan.stages - first)
    predicted = _drawn(window(around, batches))
    measured = _drawn(window(lanes, batches)) if traced else []
    return DrawnSchedule(batches, bool(measured), schedule_chart(predicted, measured) if predicted else None)


def _drawn(lanes: Sequence[Lane]) -> list[TimedAction]:
    """The actions to draw; waits stay empty."""
    return [bar for lane in lanes for bar in lane.bars if bar.end_s > bar.start_s and action_of(bar)]


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


def _plan_rows(run: RunFolder, figures: Figures, timed: Sequence[StageRecord]) -> list[list[str]]:
    """For each stage: its components, the times of a mini-batch and the memory, each predicted and measured."""
    rows = []
    for stage in run.plan.stage_plans:
        own = [record for record in timed if record.stage == stage.stage]
        num_steps = sum(record.steps for record in own)
        row = [str(stage.stage), _components(run, stage)]
        for part in ("forward", "backward", "update"):
            measured = sum(getattr(record, f"{part}_s") for record in own) / num_steps if num_steps else None
            row += [milliseconds(getattr(stage, f"{part}_s")), milliseconds(measured)]
        rows.append([*row, size(stage.memory.total_bytes), size(figures.peak_memory_bytes[stage.stage])])
    return rows


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
