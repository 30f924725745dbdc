"""`make_plan`: partition, prediction and limits, for a setting."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np

from alray.core.counting import counted
from alray.planning.prediction.best import best_cut, fullest_stage, nearest_to_fitting
from alray.planning.prediction.memory import memory_of, stage_ranges
from alray.planning.prediction.partition import requested_partition
from alray.planning.prediction.plan import EdgePlan, Plan, StagePlan
from alray.planning.prediction.predict import StepPrediction, bound_of, predict_evaluation, predict_step
from alray.planning.prediction.seconds import RunSeconds, computing_s, copies_links
from alray.planning.prediction.setting import StepLayout, StepSetting
from alray.planning.schedules.actions import ActionKind
from alray.planning.schedules.durations import Durations

LEAST_DEADLINE_S = 15.0  # threads start, libraries load, and the machine may be busy
DEADLINE_FACTOR = 20.0  # costs may be estimates
_WORTH_TELLING = 1.01  # a measurement cannot show a gain of less than 1 %
_EQUAL = 1e-6  # sums are rounded


def make_plan(
    setting: StepSetting,
    partition: str | Sequence[int],
    *,
    evaluation_batches: int,
    shares: tuple[int, ...] = (),
    **known: Any,
) -> Plan:
    """The plan of a run.

    Args:
        setting: memory limits bind `auto` alone; any other partition is taken as it is, because the memory is an
            estimate.
        partition: `auto` (the cut with the shortest step), `uniform`, `cyclic`, `parameters`, or the number of
            components of each (virtual) stage.
        evaluation_batches: mini-batches of one evaluation, over all splits it covers.
        shares: samples of a mini-batch for each replica; the costs are those of the largest share.
        known: other fields of the plan.

    Raises:
        PlanError: where the components cannot be divided in this way.
    """
    parameters = [component.parameters for component in setting.costs.components]
    counts = requested_partition(partition, parameters, setting.num_parts, auto=lambda: best_cut(setting).cut)
    prediction = predict_step(setting, counts)
    durations = RunSeconds(setting).of_cuts(counts)
    evaluating = _of_evaluations(setting, shares)
    too_large = None
    if setting.memory_limits and not (fullest := fullest_stage(setting, counts)).fits:
        too_large = (
            f"stage {fullest.stage} needs {fullest.need:,} bytes and its device has {fullest.limit:,}, so this plan is "
            "not likely to run"
        )
    return Plan(
        **{each.name: getattr(setting, each.name) for each in fields(StepLayout)},
        **known,
        partition=counts,
        stage_plans=tuple(_stage_plan(setting, counts, durations, stage) for stage in range(setting.stages)),
        edges=edge_plans(setting, counts),
        predicted_step_time_s=prediction.step_time_s,
        predicted_bubble=prediction.bubble,
        bound_s=bound_of(setting, counts),
        limited_by=limited_by(setting, counts, prediction),
        evaluation_s=predict_evaluation(evaluating, counts, evaluation_batches),
        deadline_s=_deadline_s(evaluating, counts, prediction),
        shares=shares,
        predicted_step_range_s=step_range(setting, counts),
        too_large=too_large,
    )


def step_range(setting: StepSetting, counts: Sequence[int]) -> tuple[float, float] | None:
    """The seconds of a step of this cut if all computations take the least, and the most, that they may; None where
    nothing is known of that."""
    low, high = setting.costs.spread
    if low == high:
        return None
    least, most = (
        predict_step(replace(setting, costs=setting.costs.times(factor)), counts).step_time_s for factor in (low, high)
    )
    return least, most


def _of_evaluations(setting: StepSetting, shares: Sequence[int]) -> StepSetting:
    """The setting of evaluations: replica 0 has whole mini-batches, not its share, on its own devices."""
    if setting.evaluation_speed is not None:
        setting = replace(setting, stage_speed=setting.evaluation_speed)
    costs, samples = setting.costs, sum(shares)
    if samples in (0, costs.batch_size):
        return setting
    whole = samples / costs.batch_size
    components = [
        replace(
            each,
            infer_s=each.infer_s * whole,
            route_s=each.route_s * whole,
            infer_bytes=round(each.infer_bytes * whole),
            route_bytes=round(each.route_bytes * whole),
        )
        for each in costs.components
    ]
    return replace(setting, costs=replace(costs, components=tuple(components), data_s=costs.data_s * whole))


def _deadline_s(evaluating: StepSetting, counts: tuple[int, ...], prediction: StepPrediction) -> float:
    """A stage may have to wait while a mini-batch goes through all other stages, in training or in evaluation."""
    inference = RunSeconds(evaluating).of_evaluation(counts)
    messages_s = sum(inference.up_link_s) + sum(inference.down_link_s)
    evaluation_s = sum(map(sum, inference.computing.values())) + messages_s
    longest_wait_s = max(prediction.step_time_s, prediction.first_step_s, evaluation_s)
    return max(LEAST_DEADLINE_S, DEADLINE_FACTOR * longest_wait_s)


def _stage_plan(setting: StepSetting, counts: tuple[int, ...], durations: Durations, stage: int) -> StagePlan:
    """
    Args:
        durations: of each action of the cut.
    """
    held = setting.held(stage)
    ranges = stage_ranges(counts)
    runs = [ranges[virtual] for virtual in held]
    seconds = durations.computing

    def total(*kinds: ActionKind) -> float:
        of_kinds = ((kind, virtual) for kind in kinds if kind in seconds for virtual in held)
        return sum(setting.counts.get((kind, virtual), 0) * seconds[kind][virtual] for kind, virtual in of_kinds)

    data_s = setting.costs.data_s if stage == 0 else 0.0
    return StagePlan(
        stage=stage,
        first=runs[0].start,
        last=runs[0].stop - 1,
        data_s=data_s,
        forward_s=max(0.0, total("F", "C") - data_s),
        backward_s=total("L", "B", "I", "G"),
        update_s=total("U"),
        averages_s=sum(durations.averages_s[virtual] for virtual in held) if len(durations.averages_s) else 0.0,
        memory=memory_of(setting, counts, stage),
        chunks=tuple((run.start, run.stop - 1) for run in runs) if setting.virtual_stages > 1 else (),
    )


def edge_plans(setting: StepSetting, counts: Sequence[int]) -> tuple[EdgePlan, ...]:
    """The messages between neighbouring stages: outputs up, and in pipelines their gradients down."""
    moved = Counter[tuple[int, int]]()
    whole = Counter[tuple[int, int]]()  # without compression
    for own, (lower, upper) in zip(stage_ranges(counts), pairwise(setting.holders), strict=False):
        if lower == upper:  # handed over within the stage
            continue
        end = setting.costs.components[own.stop - 1]
        moved[lower, upper] += end.output_bytes
        whole[lower, upper] += end.whole_bytes
        if setting.scheduled.is_pipeline:
            moved[upper, lower] += end.gradient_message_bytes
            whole[upper, lower] += end.uncompressed_gradient_bytes
    compressed = any(component.uncompressed_bytes is not None for component in setting.costs.components)
    return tuple(
        EdgePlan(f"{source}->{goal}", total, whole[source, goal] if compressed else None)
        for (source, goal), total in moved.items()
    )


def limited_by(setting: StepSetting, partition: Sequence[int], prediction: StepPrediction) -> str:
    """One sentence: what the step time depends on, and a better cut where there is one."""
    stages = setting.stages
    cores = setting.cores
    if prediction.shared and cores is not None:
        threads = stages * setting.replicas * setting.costs.threads
        return (
            f"processors are shared: {counted(threads, 'thread')} of {counted(stages * setting.replicas, 'stage')} "
            f"on {counted(cores, 'processor')}"
        )
    if setting.in_turns:
        return "the stages take turns in one process: a step takes as long as the work of all of them"
    step_s, even_s = prediction.step_time_s, prediction.even_step_s
    durations = RunSeconds(setting).of_cuts(partition)
    more = _averages(setting, durations, step_s)
    if stages == 1:
        return f"one stage does all the work{more}"
    if step_s > _WORTH_TELLING * even_s:
        more += f"; waiting for uneven computations adds {_percent(step_s / even_s - 1.0)}"
    other_cuts = _other_cuts(setting, partition, prediction.even_step_s)
    return f"{_reason(setting, durations, prediction)}{more}; {other_cuts}"


def _averages(setting: StepSetting, durations: Durations, step_s: float) -> str:
    """The share of the step in which a stage averages over the replicas; nothing where it is less than 1 %."""
    longest_s = max(setting.by_stage(durations.averages_s))
    if longest_s <= (_WORTH_TELLING - 1.0) * step_s:
        return ""
    return f"; averages over the replicas take {_percent(longest_s / step_s)} of a step"


def _other_cuts(setting: StepSetting, partition: Sequence[int], step_time_s: float) -> str:
    """How much faster another cut is.

    Stages that share processors slow each other down, and only the chosen cut is predicted with that.
    """
    if setting.memory_limits and not fullest_stage(setting, nearest_to_fitting(setting)).fits:
        return "no cut fits the memory of the devices"
    best = best_cut(setting)
    if best.cut != tuple(partition):
        better_s = predict_step(setting, best.cut).even_step_s
        if better_s > 0 and step_time_s / better_s >= _WORTH_TELLING:
            known = "best" if best.is_best else "a better"
            return f"{known} cut {list(best.cut)} gives {step_time_s / better_s:.2f}x"
    proven = best.is_best and step_time_s <= best.step_s * (1.0 + _EQUAL)
    return "no other cut is better" if proven else "no better cut was found"


def _reason(setting: StepSetting, durations: Durations, prediction: StepPrediction) -> str:
    """The slowest stage and how long stages idle, or the link that takes longer than any stage."""
    computing = computing_s(setting, durations)
    if (busy := _busiest_link(setting, durations)) is not None and busy[0] > max(computing):
        return f"the link between stages {busy[1]} and {busy[2]} takes {_milliseconds(busy[0])} for a mini-batch"
    parts = f" with {counted(setting.micro_batches, 'micro-batch')}" if setting.micro_batches > 1 else ""
    idle = f"the stages idle for {_percent(prediction.bubble or 0.0)} of the step{parts}"
    return f"{_slowest(computing)}, and {idle}"


def _busiest_link(setting: StepSetting, durations: Durations) -> tuple[float, int, int] | None:
    """Seconds for which the busiest link between nodes is busy with one mini-batch, in one direction, and the stages at
    its ends."""
    up_s = setting.micro_batches * np.asarray(durations.up_link_s)
    if len(durations.labels_link_s):
        up_s = up_s + np.asarray(durations.labels_link_s)
    down_s = setting.micro_batches * np.asarray(durations.down_link_s)
    busy = defaultdict[tuple[int, int], float](float)
    for (lower, upper), up, down in zip(pairwise(setting.holders), up_s, down_s, strict=False):
        busy[lower, upper] += up
        busy[upper, lower] += down
    for stage, copied_s in copies_links(setting).items():
        busy[setting.stages - 1, stage] += copied_s
    return max(((seconds, min(way), max(way)) for way, seconds in busy.items()), default=None)


def _percent(share: float) -> str:
    """To two digits, in whole ones from 100 on."""
    percent = 100 * share
    return f"{percent:,.0f} %" if percent >= 99.5 else f"{percent:.2g} %"


def _milliseconds(seconds: float) -> str:
    milliseconds = 1e3 * seconds
    return f"{milliseconds:,.0f} ms" if milliseconds >= 1000 else f"{milliseconds:.3g} ms"


def _slowest(seconds: Sequence[float]) -> str:
    mean = sum(seconds) / len(seconds)
    slowest = max(range(len(seconds)), key=lambda stage: seconds[stage])
    over = round(100 * (seconds[slowest] / mean - 1.0)) if mean > 0 else 0
    if over == 0:
        return "all stages take the same"
    return f"stage {slowest} is {over} % slower than the mean"
