"""`make_plan`: partition, prediction and limits, from costs and plain values of the spec."""

from __future__ import annotations

from collections.abc import Sequence

from alray.errors import PlanError
from alray.plan.bounds import best_partition
from alray.plan.costs import Costs
from alray.plan.limits import limited_by
from alray.plan.memory import stage_memory, stage_ranges
from alray.plan.partition import check_partition, partition_parameters, partition_uniform
from alray.plan.plan import EdgePlan, Plan, StagePlan
from alray.plan.predict import evaluation_durations, predict_evaluation, predict_step, stage_durations

LEAST_DEADLINE_S = 15.0  # starting threads, loading libraries and a busy machine take their time
DEADLINE_FACTOR = 20.0  # costs may be estimates


def make_plan(
    *,
    method: str,
    schedule: str,
    stages: int,
    replicas: int,
    partition: str | Sequence[int],
    in_flight: int,
    costs: Costs,
    cores: int | None,
    steps_per_epoch: int,
    total_steps: int | None,
    evaluation_batches: int,
) -> Plan:
    """The plan of a run.

    schedule: one of `schedules.SCHEDULES` (`auto` is resolved by the spec).
    partition: `auto` (the smallest bound of the schedule), `uniform`, `parameters`, or a count for each
    stage. cores: processors that all stages and replicas share; None where each stage has its own device.
    evaluation_batches: mini-batches of one evaluation, over all splits it covers.

    Raises PlanError where the components cannot be laid on the stages so.
    """
    counts = _choose_partition(partition, schedule, costs, stages)
    prediction = predict_step(schedule, costs, counts, in_flight, replicas=replicas, cores=cores)
    evaluation_s = predict_evaluation(costs, counts, in_flight, evaluation_batches, replicas=replicas, cores=cores)
    durations = stage_durations(costs, counts)
    stage_plans = tuple(
        StagePlan(
            stage=stage,
            first=own.start,
            last=own.stop - 1,
            forward_s=durations.forward_s[stage],
            backward_s=durations.backward_s[stage],
            update_s=durations.update_s[stage],
            memory=stage_memory(costs, own, in_flight),
        )
        for stage, own in enumerate(stage_ranges(counts))
    )
    edges = tuple(
        EdgePlan(f"{plan.stage}->{plan.stage + 1}", costs.components[plan.last].output_bytes)
        for plan in stage_plans[:-1]
    )
    inference = evaluation_durations(costs, counts)
    # A stage may have to wait for a mini-batch's whole way through the others, in training or in evaluation.
    longest_wait_s = max(
        prediction.step_time_s, prediction.first_step_s, sum(inference.infer_s) + sum(inference.route_s)
    )
    return Plan(
        method=method,
        schedule=schedule,
        stages=stages,
        replicas=replicas,
        partition=counts,
        in_flight=in_flight,
        steps_per_epoch=steps_per_epoch,
        total_steps=total_steps,
        stage_plans=stage_plans,
        edges=edges,
        costs=costs,
        cores=cores,
        predicted_step_time_s=prediction.step_time_s,
        predicted_bubble=prediction.bubble,
        bound_s=prediction.bound_s,
        bound=prediction.bound,
        limited_by=limited_by(schedule, costs, counts, in_flight, prediction, replicas=replicas, cores=cores),
        evaluation_s=evaluation_s,
        deadline_s=max(LEAST_DEADLINE_S, DEADLINE_FACTOR * longest_wait_s),
    )


def _choose_partition(partition: str | Sequence[int], schedule: str, costs: Costs, stages: int) -> tuple[int, ...]:
    count = len(costs.components)
    if partition == "auto":
        return best_partition(schedule, costs, stages)
    if partition == "uniform":
        return partition_uniform(count, stages)
    if partition == "parameters":
        return partition_parameters([component.parameters for component in costs.components], stages)
    if isinstance(partition, str):
        raise PlanError(
            f"unknown partition `{partition}`",
            mend="choose auto, uniform, parameters, or give a count for each stage",
            key="pipeline.partition",
        )
    return check_partition(partition, count, stages)
