"""The figures of a run, computed from its records and its plan; `summary.json` holds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from alray import __version__
from alray.core.errors import printable
from alray.core.metric import ACCURACY, Metric
from alray.core.run_folder.records import (
    AttemptSummary,
    EngineName,
    EvaluationRecord,
    EventRecord,
    Failure,
    Figures,
    PlanRecord,
    Record,
    Scores,
    StageRecord,
    Standing,
    Status,
    Summary,
    effective,
    read,
    replace_file,
    samples_per_s,
)
from alray.core.run_folder.store import checkpoint_folder, has_checkpoint
from alray.core.storage.location import Location
from alray.planning.prediction.plan import Plan
from alray.planning.schedules.table import SCHEDULES
from alray.report.attempts import Attempt, Timed, of_final_weights, split_attempts, timed_with
from alray.report.spread import spread
from alray.report.text import seconds
from alray.runtime.probe.other_programs import measured_beside, trained_beside
from alray.runtime.stage.weights_hash import weights_sha256

if TYPE_CHECKING:
    from alray.runtime.workload import Workload

_TOLERANCE = 0.02
"""By how much of its time a run may seem to train for less time than its busiest stage computed without a warning."""
_STANDARD_ERRORS = 3
"""By how many standard errors the mean of a few step times may be too small by chance."""


def summarise(records: Sequence[Record], plan: Plan, metric: Metric = ACCURACY, **facts: Any) -> Summary:
    """The summary of a run: the figures of `figures_of`, and the facts that the caller knows.

    Args:
        records: all records of the run as they were written, lost work included.
        metric: of its task, for a run without an evaluation.
        facts: the other fields of a summary.
    """
    return Summary(**facts, **dict(figures_of(records, plan, metric)))


def write_summary(
    run_dir: Location,
    workload: Workload,
    plan: Plan,
    engine: EngineName,
    status: Status,
    step: int,
    *,
    duration_s: float,
    page: Location | None,
) -> Summary:
    """Write `summary.json` of a run that ended, and return it.

    Args:
        plan: the one it last ran with.
        step: of its last checkpoint, 0 if it has none.
        page: `report.html`, None where no page is made.
    """
    sha256 = None
    if status != "failed" and step > 0:
        sha256 = weights_sha256(checkpoint_folder(run_dir, step), len(plan.costs.components))
    summary = summarise(
        list(read(run_dir / "records.jsonl")),
        plan,
        workload.spec.task.measures,
        version=__version__,
        name=workload.spec.name,
        status=status,
        run_dir=printable(str(run_dir)),
        seed=workload.spec.seed,
        threads=workload.spec.resources.threads,
        engine=engine,
        duration_s=duration_s,
        weights_sha256=sha256,
        parameters=sum(component.parameters for component in plan.costs.components),
        classes=list(workload.data.classes),
        chance=workload.data.chance,
        report=None if page is None else printable(str(page)),
    )
    if summary.best is not None and has_checkpoint(run_dir, summary.best.step):
        folder = checkpoint_folder(run_dir, summary.best.step)
        summary.best.checkpoint = f"{folder.parent.name}/{folder.name}"
    replace_file(run_dir / "summary.json", summary.model_dump_json(indent=2) + "\n")
    return summary


def figures_of(records: Sequence[Record], plan: Plan, task_metric: Metric = ACCURACY) -> Figures:
    """The figures of a run.

    Times and the bubble are those of the attempts that ran with this plan. Mini-batches, metric and bytes are those of
    the final weights. The metric is None if they were not evaluated, for example after an interruption between two
    evaluations.

    Args:
        records: all records as they were written, lost work included.
        plan: the plan with which the run last ran.
        task_metric: for a run without an evaluation.
    """
    effective_records = effective(iter(records))
    kept = of_final_weights(effective_records)
    steps, epochs, samples = _progress(kept)
    attempts = split_attempts(effective_records)
    last = _last_of_stages(split_attempts(kept))
    timed = timed_with(attempts, plan)
    times = timed.step_times_s
    step_time_s = median(times) if times else None
    trained, _, seen = _progress(effective_records)
    batch_size = seen / trained if trained else 0.0  # the mean: the last mini-batch of an epoch may be smaller
    evaluations = [record for record in kept if isinstance(record, EvaluationRecord)]
    final = evaluations[-1] if evaluations and evaluations[-1].step == steps else None
    return Figures(
        method=plan.method,
        schedule=plan.schedule_name,
        gradient_delay=SCHEDULES[plan.schedule].gradient_delay,
        stages=plan.stages,
        replicas=plan.replicas,
        partition=list(plan.partition),
        steps=steps,
        epochs=epochs,
        samples=samples,
        samples_per_s=samples_per_s(batch_size, step_time_s),
        step_time_s=step_time_s,
        step_time_quartiles_s=np.quantile(times, (0.25, 0.75)).tolist() if times else None,
        predicted_step_time_s=plan.predicted_step_time_s,
        bubble=_bubble(timed, plan),
        predicted_bubble=plan.predicted_bubble,
        doubts=[*doubts_of(timed, plan.stages), *beside_others(attempts, plan)],
        metric=evaluations[-1].metric if evaluations else task_metric.name,
        scores=Scores() if final is None else Scores(train=final.train, validation=final.validation, test=final.test),
        best=reduce(Standing.after, evaluations, Standing()).best,
        scores_per_depth=list(final.per_depth) if final else [],
        peak_memory_bytes=_peaks(split_attempts(records), plan),
        predicted_memory_bytes=[stage.memory.total_bytes for stage in plan.stage_plans],
        bytes_sent=_by_edge([record.bytes_sent for record in last]),
        uncompressed_bytes=_uncompressed(last),
        shares=_shares(last, plan),
        all_reduce_bytes=sum(record.all_reduce_bytes for record in last),
        failures=_failures(records),
        attempts=[_attempt(each, batch_size) for each in attempts if each.plan is not None and each.stage_records],
    )


def _progress(records: Sequence[Record]) -> tuple[int, float, int]:
    """Mini-batches, epochs and samples completed, from the record with the latest step.

    Events do not count, because an event may name a step whose work was lost.
    """
    work = [record for record in records if not isinstance(record, EventRecord | PlanRecord)]
    if not work:
        return 0, 0.0, 0
    furthest = max(work, key=lambda record: record.step)
    return furthest.step, furthest.epoch, furthest.samples


def _attempt(attempt: Attempt, batch_size: float) -> AttemptSummary:
    """The measurements of one attempt.

    Args:
        batch_size: mean samples of a mini-batch.
    """
    assert attempt.plan is not None
    plan = Plan.from_json(attempt.plan)
    timed = attempt.timed
    step_time_s = median(timed.step_times_s) if timed.step_times else None
    return AttemptSummary(
        began_after=attempt.records[0].step,
        ended_after=max(record.step for record in attempt.stage_records),
        engine=attempt.engine,
        schedule=plan.schedule_name,
        stages=plan.stages,
        replicas=plan.replicas,
        partition=list(plan.partition),
        samples_per_s=samples_per_s(batch_size, step_time_s),
        step_time_s=step_time_s,
        predicted_step_time_s=plan.predicted_step_time_s,
        bubble=_bubble(timed, plan),
        predicted_bubble=plan.predicted_bubble,
        peak_memory_bytes=_peaks([attempt], plan),
    )


def _bubble(timed: Timed, plan: Plan) -> float | None:
    return None if plan.in_turns else timed.bubble(plan.stages)


def _peaks(attempts: Sequence[Attempt], plan: Plan) -> list[int | None]:
    """The highest peak of each stage, over its replicas and over the attempts that ran with this plan."""
    peaks: list[int | None] = [None] * plan.stages
    for attempt in attempts:
        if not attempt.ran(plan):
            continue
        for record in attempt.stage_records:
            if record.peak_memory_bytes is not None:
                peaks[record.stage] = max(peaks[record.stage] or 0, record.peak_memory_bytes)
    return peaks


def _by_edge(counters: Sequence[dict[str, int]]) -> dict[str, int]:
    """Bytes per edge over all attempts and replicas: the sum of the last counters of each attempt."""
    total: dict[str, int] = {}
    for counter in counters:
        for edge, count in counter.items():
            total[edge] = total.get(edge, 0) + count
    return dict(sorted(total.items(), key=lambda item: _edge_order(item[0])))


def _uncompressed(last: Sequence[StageRecord]) -> dict[str, int] | None:
    """As `bytes_sent` would be without compression; None if no attempt compressed messages."""
    if all(record.uncompressed_bytes is None for record in last):
        return None
    return _by_edge(
        [record.bytes_sent if record.uncompressed_bytes is None else record.uncompressed_bytes for record in last]
    )


def _last_of_stages(attempts: Sequence[Attempt]) -> list[StageRecord]:
    """The last record of each stage of each replica in each attempt."""
    found: list[StageRecord] = []
    for attempt in attempts:
        found += {(record.stage, record.replica): record for record in attempt.stage_records}.values()
    return found


def _shares(last: Sequence[StageRecord], plan: Plan) -> list[int]:
    """The samples of a mini-batch that each replica takes at the end."""
    shares = list(plan.shares)
    for record in last:
        if record.share is not None and record.replica < plan.replicas:
            shares[record.replica] = record.share
    return shares


def _edge_order(edge: str) -> tuple[int, ...]:
    """The key that sorts edges by their stages: "2->3" before "10->11"."""
    return tuple(int(stage) for stage in edge.split("->"))


def _failures(records: Sequence[Record]) -> list[Failure]:
    """Every failure of the run, whether it recovered or not.

    A run that gives up writes an event `failed` after the event `failure` that caused it. The two count as one.
    """
    failures: list[Failure] = []
    counted = False
    for record in records:
        if not isinstance(record, EventRecord):
            continue
        if record.event == "failure" or (record.event == "failed" and not counted):
            failures.append(Failure(step=record.step, stage=record.stage, message=record.message))
        counted = record.event == "failure"
    return failures


def doubts_of(timed: Timed, stages: int) -> list[str]:
    """The warning about times of a run in which it trained for less time than its busiest stage computed; none if all
    times are possible.

    Several mini-batches are under way at once, so a stage computed those whose times count at another time, when it may
    have been slower for a while. Over a few mini-batches it can seem to compute for longer than they took. So the mean
    step time has to be too small by more than their spread explains, and fewer than three show no spread.

    Args:
        timed: its mini-batches after warm-up.
    """
    busiest = max(range(stages), key=lambda stage: timed.computing_s(stage) or 0.0)
    computing_s, step_s = timed.computing_s(busiest), spread(timed.step_times_s)
    if computing_s is None or step_s is None or step_s.deviation is None or not timed.of_the_same:
        return []
    at_most_s = step_s.mean + _STANDARD_ERRORS * step_s.deviation / math.sqrt(step_s.runs)
    if at_most_s >= computing_s * (1.0 - _TOLERANCE):
        return []
    return [
        f"a mini-batch took {seconds(step_s.mean)}, less than the {seconds(computing_s)} that stage {busiest} "
        "computed for it: do not rely on the times, the throughput and the bubble of this run"
    ]


def beside_others(attempts: Sequence[Attempt], plan: Plan) -> list[str]:
    """What other programs did to the times of a run: to the prediction, and to what was measured with this plan."""
    events = [record for each in attempts if each.ran(plan) for record in each.records]
    taken = max((each.taken_processors or 0.0 for each in events if isinstance(each, EventRecord)), default=0.0)
    return [*measured_beside(plan.costs.taken_processors), *trained_beside(taken)]
