"""Prediction: what a partition's steps and evaluations will take, by simulating them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alray.plan.bounds import FORMULAS, step_bound
from alray.plan.costs import Costs
from alray.plan.memory import stage_ranges
from alray.plan.program import Program
from alray.plan.simulate import Durations, simulate
from alray.plan.timeline import Timeline

NUM_BATCHES = 64  # simulated for the steady state, after which nothing new happens


@dataclass(frozen=True)
class Prediction:
    """Seconds of one mini-batch in steady state, and what holds it there."""

    step_time_s: float
    bubble: float
    bound_s: float
    bound: str
    first_step_s: float  # of the first mini-batch on its way through all stages
    shared: bool  # processors are fewer than the threads that want them, and set the pace


def stage_durations(costs: Costs, partition: Sequence[int]) -> Durations:
    """What each stage's actions and each edge's messages take.

    Inference of component l (from 0) of L comes down once for each of the L - l depths it decodes.
    """
    ranges = stage_ranges(partition)
    components = costs.components
    count = len(components)
    lower = [own.stop - 1 for own in ranges[:-1]]  # the component below each edge
    per_byte = costs.edge_s_per_byte
    return Durations(
        forward_s=[sum(components[i].forward_s for i in own) for own in ranges],
        backward_s=[sum(components[i].backward_s for i in own) for own in ranges],
        update_s=[sum(components[i].update_s for i in own) for own in ranges],
        infer_s=[sum(components[i].infer_s for i in own) for own in ranges],
        route_s=[sum(components[i].route_s * (count - i) for i in own) for own in ranges],
        up_s=[components[i].output_bytes * per_byte for i in lower],
        down_s=[0.0 for _ in lower],
        latency_s=costs.edge_latency_s,
    )


def evaluation_durations(costs: Costs, partition: Sequence[int]) -> Durations:
    """The same, with the messages of evaluation: outputs go up, the answers of all depths above come down."""
    training = stage_durations(costs, partition)
    components = costs.components
    lower = [own.stop - 1 for own in stage_ranges(partition)[:-1]]
    return Durations(
        forward_s=training.forward_s,
        backward_s=training.backward_s,
        update_s=training.update_s,
        infer_s=training.infer_s,
        route_s=training.route_s,
        up_s=[components[i].infer_bytes * costs.edge_s_per_byte for i in lower],
        down_s=[components[i + 1].route_bytes * (len(components) - i - 1) * costs.edge_s_per_byte for i in lower],
        latency_s=costs.edge_latency_s,
    )


def predicted_timeline(
    schedule: str, costs: Costs, partition: Sequence[int], in_flight: int, *, num_batches: int = NUM_BATCHES
) -> Timeline:
    """The first mini-batches of a run as predicted, each stage with its own device."""
    program = Program.of_schedule(schedule, len(partition), num_batches)
    return simulate(program, stage_durations(costs, partition), in_flight=in_flight)


def predict_step(
    schedule: str, costs: Costs, partition: Sequence[int], in_flight: int, *, replicas: int, cores: int | None
) -> Prediction:
    """The step of one partition; with `cores`, of stages and replicas that share so many processors."""
    durations = stage_durations(costs, partition)
    timeline = predicted_timeline(schedule, costs, partition, in_flight)
    backward = [b + u for b, u in zip(durations.backward_s, durations.update_s, strict=True)]
    bound_s = step_bound(schedule, durations.forward_s, backward)
    bound = FORMULAS[schedule]
    computing = sum(durations.forward_s) + sum(backward)
    step_time_s = timeline.step_time_s
    shared = False
    if cores is not None:
        threads = costs.threads * replicas
        if computing * threads / cores > bound_s:
            bound_s = computing * threads / cores
            bound = "sum(F+B)*threads/processors"
        # Messages too are packed and unpacked by the processors.
        work = (computing + sum(durations.up_s)) * threads / cores
        shared = work > step_time_s
        step_time_s = max(step_time_s, work)
    bubble = max(0.0, 1.0 - computing / (len(partition) * step_time_s)) if step_time_s > 0 else 0.0
    return Prediction(step_time_s, bubble, bound_s, bound, float(timeline.completed_s[0]), shared)


def predict_evaluation(
    costs: Costs,
    partition: Sequence[int],
    in_flight: int,
    num_batches: int,
    *,
    replicas: int,
    cores: int | None,
) -> float:
    """Seconds of one evaluation over `num_batches` mini-batches; 0 where there are none."""
    if num_batches == 0:
        return 0.0
    durations = evaluation_durations(costs, partition)
    program = Program.of_evaluation(len(partition), num_batches)
    seconds = simulate(program, durations, in_flight=in_flight).duration_s
    if cores is None:
        return seconds
    work = sum(durations.infer_s) + sum(durations.route_s) + sum(durations.up_s) + sum(durations.down_s)
    return max(seconds, num_batches * work * costs.threads * replicas / cores)
