"""The figures of a run. The docstring of each function is what the page says of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import isfinite
from typing import Any

from alray.core.counting import counted
from alray.core.metric import Metric
from alray.core.run_folder.metrics import METRICS
from alray.core.run_folder.records import WARM_UP_STEPS, EvaluationRecord, StepRecord
from alray.planning.prediction.plan import Plan
from alray.report.attempts import Timed, split_attempts, timed_with
from alray.report.drawing import MEASURED, PLAIN_NUMBER, Curves, Scale, colour_of, colours_of, hiding, tell, zoom
from alray.report.figure import ROWS_NAME, Exhibit, Figure, Series, Show
from alray.report.folder import RunFolder
from alray.report.lanes import View, action_of, steady, whole
from alray.report.schedule_figure import schedule_figure
from alray.report.single_step import COLUMNS, HEAD, rows_of, single_step
from alray.report.table import Table
from alray.report.text import number, score
from alray.report.thinning import CurvePoint, groups, run_length, spaced, thin
from alray.report.timeline import measured_last, predicted_lanes, predicted_steady

_FIRST_SHOWN = 6  # mini-batches of the schedule that a page shows at first
_MOST_SLOTS = 2500  # of the schedule, predicted and measured
_MOST_POINTS = 2000  # of all curves of a figure together
_STEPS = Scale("step", "mini-batches completed", form=PLAIN_NUMBER, from_zero=True)


def network(run: RunFolder) -> Exhibit:
    """The chain of components, and the stage and device that each of them is on. Point at a component to read its
    parameters, the shape of what it passes on, and the times that the plan counts with. Source: plan.json."""
    plan = run.plan
    devices = _devices(run)
    lanes = [f"stage {stage.stage}|{devices[stage.stage]}" for stage in plan.stage_plans]
    rows = [
        row for stage, lane in zip(plan.stage_plans, lanes, strict=True) for row in _components(plan, stage.stage, lane)
    ]
    rows.sort(key=lambda row: int(row["component"]))
    series = colours_of([f"stage {stage.stage}" for stage in plan.stage_plans])
    what = f"{len(rows)} components on {plan.stages} stages: partition {list(plan.partition)}."
    size = (960, 48 * plan.stages + 52)
    figure = Figure("network", "Components, stages and devices", what, rows, _boxes(lanes, series), series, size=size)
    replicas = (f"{plan.replicas} replicas, each with all of these stages",) if plan.replicas > 1 else ()
    return Exhibit("The network", (figure,), replicas)


def losses(run: RunFolder) -> Exhibit:
    """The losses of each component in training, by mini-batch: one figure for each loss. A point of a long run is the
    mean of neighbours. Source: records.jsonl."""
    found: dict[str, dict[int, list[CurvePoint]]] = {}
    for record in run.effective_records:
        if isinstance(record, StepRecord):
            for component, own in record.losses.items():
                for name, value in own.items():
                    found.setdefault(name, {}).setdefault(component, []).append((record.step, value))
    if not found:
        return Exhibit("Losses", findings=("No mini-batch was recorded.",))
    findings: list[str] = []
    figures = []
    for name, of in sorted(found.items()):
        limit = max(50, _MOST_POINTS // len(of))
        rows = [
            {"series": f"component {component}", "kind": MEASURED, "step": step, "loss": value}
            for component in sorted(of)
            for step, value in thin(of[component], limit)
        ]
        lengths = [len(points) for points in of.values()]
        title = f"{name.replace('_', ' ')} loss"
        if run_length(max(lengths), limit) > 1:
            findings.append(f"{title}: each point is the mean of {run_length(max(lengths), limit):,} neighbours")
        if left_out := sum(not isfinite(value) for points in of.values() for _, value in points):
            findings.append(f"{title}: {left_out:,} values that are not finite left out")
        if rows:
            figures.append(_loss_figure(name, title, rows))
    return Exhibit("Losses", tuple(figures), tuple(findings))


def accuracy(run: RunFolder) -> Exhibit:
    """The accuracy, or the metric of another task, at every evaluation: of the whole network on each set, and of the
    route of each depth. A route of depth n uses the first n components only. The table has those of the last
    evaluation. Evaluations of work that an interrupted or failed run could not save are left out, and those by another
    metric than the last one's. Training samples are measured without augmentation. Of very many evaluations only some
    are drawn. Source: records.jsonl."""
    evaluations: Sequence[EvaluationRecord] = run.evaluations
    if not evaluations:
        lost = any(isinstance(record, EvaluationRecord) for record in run.effective_records)
        why = "No evaluation is of weights that the run has kept." if lost else "The run made no evaluation."
        return Exhibit(run.task_metric.heading, findings=(why,))
    last = evaluations[-1]
    metric = METRICS[last.metric]
    evaluations = spaced(evaluations, _MOST_POINTS // max(3, len(last.per_depth)))
    figures = []
    sets = [
        {"series": split, "kind": MEASURED, "step": record.step, metric.name: value}
        for split in ("train", "validation", "test")
        for record in evaluations
        if (value := getattr(record, split)) is not None
    ]
    if sets:
        figures.append(_metric_figure(metric, metric.name, metric.heading, "on each set", sets))
    split = "test" if any(entry.test is not None for entry in last.per_depth) else "validation"
    depths = [
        {"series": f"depth {entry.depth}", "kind": MEASURED, "step": record.step, metric.name: value}
        for record in evaluations
        for entry in record.per_depth
        if (value := getattr(entry, split)) is not None
    ]
    if len({row["series"] for row in depths}) > 1:
        depths.sort(key=lambda row: int(row["series"].split()[1]))
        title = f"{split.capitalize()} {metric.title} of every depth"
        figures.append(_metric_figure(metric, f"{metric.name}_per_depth", title, "of every depth", depths))
    table = Table(
        ("depth", "train", "validation", "test"),
        tuple((str(entry.depth), *map(score, (entry.train, entry.validation, entry.test))) for entry in last.per_depth),
    )
    found = [f"The last evaluation was made after {last.step:,} mini-batches."]
    of_all = [record for record in run.effective_records if isinstance(record, EvaluationRecord)]
    if left_out := sum(record.metric != last.metric for record in of_all):
        found.append(f"{counted(left_out, 'evaluation')} by another metric left out")
    tables = {f"{metric.name}_per_depth": table} if last.per_depth else {}
    return Exhibit(metric.heading, tuple(figures), tuple(found), tables=tables)


def schedule(run: RunFolder) -> Exhibit:
    """The actions of each stage over time, above as the plan predicts them, below as the stages' clocks measured them:
    the same mini-batches, counted from 0, on one axis. Point at a slot to read its action, components and
    mini-batch. The prediction is without evaluations and checkpoints: after one, it is ahead. A row that ends early has
    no more mini-batches, or was not traced any longer."""
    title = "Schedule, predicted and measured"
    lanes = [lane for lane in measured_last(run.effective_records, run.plan) if lane.replica == 0]
    if lanes and (first := min(lanes[0].begins(), default=None)) is not None:
        begun = len(lanes[0].begins())
        most = _MOST_SLOTS * begun // max(1, 2 * sum(len(lane.bars) for lane in lanes))
        view, batches = steady(lanes, first + WARM_UP_STEPS, max(_FIRST_SHOWN, most))
        views = {"predicted": predicted_steady(run.plan, batches), "measured": view}
        findings = [_window(view, batches)]
    else:
        batches = range(min(_FIRST_SHOWN, run.plan.total_steps or _FIRST_SHOWN))
        views = {"predicted": whole(predicted_lanes(run.plan, len(batches)))}
        findings = [
            f"Mini-batches 0 to {batches.stop - 1:,} from the start of the run.",
            "None was traced: only the plan is drawn.",
        ]
    if run.plan.in_turns:
        findings.append("The stages take turns in one process: a stage waits while another one computes.")
    if run.plan.replicas > 1:
        findings.append("Replica 0 is drawn.")
    if views["predicted"].end_s <= views["predicted"].start_s:
        return Exhibit(title, findings=("By the costs of the plan no action takes any time.",))
    shown_s = _first_shown_s(list(views.values())[-1], batches)
    return Exhibit(title, (schedule_figure(views, run.plan, shown_s),), tuple(findings))


def utilisation(run: RunFolder) -> Exhibit:
    """The share of the step time in which each stage computes, over the run: reading data counts as computing, and
    evaluations and checkpoints are not part of the time. Source: the records of the stages in records.jsonl."""
    title = "Utilisation of the stages"
    plan = run.plan
    timed = timed_with(split_attempts(run.effective_records), plan)
    if not timed:
        return Exhibit(title, findings=("No mini-batch after warm-up was measured.",))
    stages = [f"stage {stage}" for stage in range(plan.stages)]
    rows = list(_utilisation(timed, plan))
    share = Scale("utilisation", "share of the time computing", ticks=(0, 0.25, 0.5, 0.75, 1), form=".0%")
    x = Scale("seconds", "seconds since the start of the run", form=PLAIN_NUMBER, from_zero=True)
    curves = Curves(x, share, colours_of(stages), tells={"series": "stage", "step": "mini-batches"}, size=14)
    evaluated_s = sum(record.duration_s for record in run.effective_records if isinstance(record, EvaluationRecord))
    findings = [f"Stage 0 spent {evaluated_s:.3g} s on evaluations in all, from its last mini-batch before each."]
    if plan.in_turns:
        findings.append("The stages take turns in one process: what one of them waits for is the work of the others.")
    over_time = curves.figure("utilisation", "Utilisation over time", rows, "Utilisation of each stage over time.")
    return Exhibit(title, (over_time,), tuple(findings))


def one_step(run: RunFolder) -> Exhibit:
    """The time of one mini-batch in milliseconds. Measured: means after warm-up, over all replicas. Predicted: from the
    costs, by a simulation of the schedule. The rows called step are the means of the stages."""
    step = single_step(run.effective_records, run.plan)
    table = Table(("stage", "source", *HEAD), rows_of((row.label, row) for row in step.rows))
    costs = step.plan.costs
    sources = {"probe": "measured by a probe", "estimated": "estimated by counting", "given": "given by the spec"}
    finding = (
        f"A mini-batch of {costs.batch_size} samples on {costs.device}, {counted(costs.threads, 'thread')} a stage; "
    )
    finding += f"costs {sources.get(costs.source, costs.origin)}."
    return Exhibit("The single step", findings=(finding,), tables={"single_step": table}, meanings=COLUMNS)


EXHIBITS: tuple[Show[RunFolder], ...] = (network, losses, accuracy, schedule, utilisation, one_step)
"""In the order of the page."""


def _devices(run: RunFolder) -> list[str]:
    """Where each stage of replica 0 is: its node; where there is only one, the kind of its device."""
    return list(run.plan.nodes[: run.plan.stages]) or [run.plan.costs.device] * run.plan.stages


def _components(plan: Plan, stage: int, lane: str) -> Iterator[dict[str, Any]]:
    memory = plan.stage_plans[stage].memory.total_bytes
    for index in plan.stage_plans[stage].components:
        costs = plan.costs.components[index]
        yield {
            "series": f"stage {stage}",
            "lane": lane,
            "component": str(index),
            "name": costs.name,
            "label": f"{index} {costs.name}",
            "begin": index + 0.04,
            "end": index + 0.96,
            "parameters": number(costs.parameters),
            "output": " x ".join(map(str, costs.output_shape)),
            "forward_ms": 1e3 * costs.forward_s,
            "backward_ms": 1e3 * costs.backward_s,
            "update_ms": 1e3 * costs.update_s,
            "device": plan.costs.device,
            "stage_memory": memory,
        }


def _boxes(lanes: Sequence[str], series: Sequence[Series]) -> dict[str, Any]:
    scale = {"nice": False, "zero": False}
    x = {"field": "begin", "type": "quantitative", "scale": scale, "axis": None}
    axis = {"labelExpr": "split(datum.label, '|')", "domain": False, "ticks": False, "title": None, "labelLimit": 130}
    y = {"field": "lane", "type": "nominal", "sort": list(lanes), "axis": axis, "scale": {"paddingInner": 0.25}}
    titles = {"name": "block", "series": "on", "device": "device", "output": "passes on", "parameters": "parameters"}
    costs = [tell(f"{part}_ms", f"{part}, ms", ",.3~g") for part in ("forward", "backward", "update")]
    tooltip = [tell("component", "component"), *(tell(name, title) for name, title in titles.items()), *costs]
    wide = "scale('x', datum.end) - scale('x', datum.begin) > 6.6 * length(datum.label)"
    text = {"condition": {"test": wide, "field": "label"}, "field": "component"}
    box = {"type": "rect", "clip": True, "cornerRadius": 4, "fillOpacity": 0.2, "strokeWidth": 1.4}
    colour = colour_of(series)
    return {
        "data": {"name": ROWS_NAME},
        **hiding(),
        "layer": [
            {
                "params": [zoom("x")],
                "mark": box,
                "encoding": {
                    "x": x,
                    "x2": {"field": "end"},
                    "y": y,
                    "fill": colour,
                    "stroke": colour,
                    "tooltip": tooltip,
                },
            },
            {
                "transform": [{"calculate": "(datum.begin + datum.end) / 2", "as": "middle"}],
                "mark": {"type": "text", "clip": True, "aria": False},
                "encoding": {"x": {**x, "field": "middle"}, "y": y, "text": text},
            },
        ],
    }


def _loss_figure(name: str, title: str, rows: list[dict[str, Any]]) -> Figure:
    values = [row["loss"] for row in rows]
    y = Scale("loss", "loss of a mini-batch", base=10 if min(values) > 0 and max(values) > 30 * min(values) else 0)
    curves = Curves(_STEPS, y, tells={"series": "component"}, size=6)
    return curves.figure(f"loss_{name}", title, rows, f"The {title} in training")


def _metric_figure(metric: Metric, name: str, title: str, of: str, rows: list[dict[str, Any]]) -> Figure:
    curves = Curves(_STEPS, Scale(metric.name, metric.title), tells={"series": "of"}, size=18)
    return curves.figure(name, title, rows, f"{metric.heading} {of}")


def _first_shown_s(view: View, batches: range) -> float:
    """From the start of a view, the time of a few mini-batches of stage 0, until it evaluates."""
    lane = view.lanes[0]
    ends = [lane.begins().get(batches.start + _FIRST_SHOWN, view.end_s)]
    ends += [bar.start_s for bar in view.inside(lane) if (action := action_of(bar)) and action.kind == "E"]
    return min(ends) - view.start_s


def _window(view: View, batches: range) -> str:
    return (
        f"From {view.start_s:.3f} s to {view.end_s:.3f} s after the start of the run, after warm-up: stage 0 did "
        f"mini-batches {batches.start:,} to {batches.stop - 1:,}."
    )


def _utilisation(timed: Timed, plan: Plan) -> Iterator[dict[str, Any]]:
    """The mean over the replicas of each stage. Neighbouring records are averaged to limit the number of points."""
    step_s = _StepSeconds(timed)
    for stage in range(plan.stages):
        own = sorted(timed.of_stage(stage), key=lambda record: record.time_s)
        before = 0
        for group in groups(own, _MOST_POINTS // plan.stages, least=plan.replicas):
            num_steps = sum(record.steps for record in group)
            mean_s = step_s.mean(before, group[-1].step)
            before = group[-1].step
            if num_steps and mean_s:
                at = {"seconds": group[-1].time_s, "step": group[-1].step}
                share = sum(record.compute_s for record in group) / num_steps / mean_s
                yield {"series": f"stage {stage}", "kind": MEASURED, **at, "utilisation": share}


class _StepSeconds:
    """Mean step times of parts of a run."""

    def __init__(self, timed: Timed) -> None:
        steps = sorted(timed.step_times)
        self._numbers = [step.number for step in steps]
        self._sums = [0.0, *accumulate(step.seconds for step in steps)]
        self._whole = timed.step_s

    def mean(self, after: int, until: int) -> float | None:
        """Of the mini-batches after `after`, until `until`; of the whole run where none of these has a step time."""
        first, end = bisect_right(self._numbers, after), bisect_right(self._numbers, until)
        return (self._sums[end] - self._sums[first]) / (end - first) if end > first else self._whole
