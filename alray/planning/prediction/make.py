"""`make_plan`: partition, prediction and limits, for a setting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise

from alray.planning.prediction.best import best_cut, fullest_stage
from alray.planning.prediction.limits import limited_by
from alray.planning.prediction.memory import memory_of, stage_ranges
from alray.planning.prediction.partition import requested_partition
from alray.planning.prediction.plan import EdgePlan, Plan, StagePlan
from alray.planning.prediction.predict import StepPrediction, bound_of, predict_evaluation, predict_step
from alray.planning.prediction.seconds import RunSeconds
from alray.planning.prediction.setting import StepLayout, StepSetting
from alray.planning.schedules.actions import ActionKind
from alray.planning.schedules.durations import Durations

LEAST_DEADLINE_S = 15.0  # threads start, libraries load, and the machine may be busy
DEADLINE_FACTOR = 20.0  # costs may be estimates


def make_plan(
    setting: StepSetting,
    partition: str | Sequence[int],
    *,
    method: str,
    steps_per_epoch: int,
    total_steps: int | None,
    evaluation_batches: int,
    shares: Sequence[int] = (),
    nodes: Sequence[str] = (),
) -> Plan:
    """The plan of a run.

    Args:
        setting: memory limits bind `auto` alone; any other partition is taken as it is, because the memory is an
            estimate.
        partition: `auto` (the cut with the shortest step), `uniform`, `cyclic`, `parameters`, or the number of
            components of each (virtual) stage.
        evaluation_batches: mini-batches of one evaluation, over all splits it covers.
        shares: samples of a mini-batch for each replica; the costs are those of the largest share.
        nodes: as in `Plan`.

    Raises:
        PlanError: where the components cannot be divided in this way.
    """
    parameters = [component.parameters for component in setting.costs.components]
    counts = requested_partition(partition, parameters, setting.num_parts, auto=lambda: best_cut(setting).cut)
    prediction = predict_step(setting, counts)
    durations = RunSeconds(setting).of_cuts(counts)
    evaluating = _of_evaluations(setting, shares)
    return Plan(
        **{each.name: getattr(setting, each.name) for each in fields(StepLayout)},
        method=method,
        partition=counts,
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
        stage_plans=tuple(_stage_plan(setting, counts, durations, stage) for stage in range(setting.stages)),
        edges=edge_plans(setting, counts),
        predicted_step_time_s=prediction.step_time_s,
        predicted_bubble=prediction.bubble,
        bound_s=bound_of(setting, counts),
        limited_by=limited_by(setting, counts, prediction),
        evaluation_s=predict_evaluation(evaluating, counts, evaluation_batches),
        deadline_s=_deadline_s(evaluating, counts, prediction),
        shares=tuple(shares),
        nodes=tuple(nodes),
        predicted_step_range_s=step_range(setting, counts),
        too_large=_too_large(setting, counts),
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


def _too_large(setting: StepSetting, counts: tuple[int, ...]) -> str | None:
    fullest = fullest_stage(setting, counts) if setting.memory_limits else None
    if fullest is None or fullest.fits:
        return None
    return (
        f"stage {fullest.stage} needs {fullest.need:,} bytes and its device has {fullest.limit:,}, so this plan is not "
        "likely to run"
    )


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
    longest_wait_s = max(
        prediction.step_time_s, prediction.first_step_s, sum(inference.infer_s) + sum(inference.route_s) + messages_s
    )
    return max(LEAST_DEADLINE_S, DEADLINE_FACTOR * longest_wait_s)


def _stage_plan(setting: StepSetting, counts: tuple[int, ...], durations: Durations, stage: int) -> StagePlan:
    """
    Args:
        durations: of each action of the cut.
    """
    held = setting.held(stage)
    ranges = stage_ranges(counts)
    runs = [ranges[virtual] for virtual in held]
    seconds = durations.computations

    def total(*kinds: ActionKind) -> float:
        of_kinds = ((kind, virtual) for kind in kinds if len(seconds[kind]) for virtual in held)
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
        uncompressed = end.output_bytes if end.uncompressed_bytes is None else end.uncompressed_bytes
        moved[lower, upper] += end.output_bytes
        whole[lower, upper] += uncompressed
        if setting.scheduled.is_pipeline:
            moved[upper, lower] += end.gradient_message_bytes
            whole[upper, lower] += end.uncompressed_gradient_bytes
    compressed = any(component.uncompressed_bytes is not None for component in setting.costs.components)
    return tuple(
        EdgePlan(f"{source}->{goal}", total, whole[source, goal] if compressed else None)
        for (source, goal), total in moved.items()
    )
