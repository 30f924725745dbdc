"""Prediction: what a partition's steps and evaluations will take, by simulating them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alray.plan.bounds import FORMULAS, bound_of
from alray.plan.costs import Costs
from alray.plan.durations import action_durations, computing_s, evaluation_durations
from alray.plan.program import Program
from alray.plan.setting import Setting
from alray.plan.simulate import simulate
from alray.plan.timeline import Timeline

NUM_BATCHES = 64  # simulated for the steady state, after which nothing new happens
NUM_PIPELINE_BATCHES = 8  # a pipeline drains at the end of each, so its steady state is there at once


@dataclass(frozen=True)
class StepPrediction:
    """Seconds of one mini-batch in steady state, and what holds it there."""

    step_time_s: float
    bubble: float
    bound_s: float
    bound: str
    first_step_s: float  # of the first mini-batch on its way through all stages
    shared: bool  # processors are fewer than the threads that want them, and set the pace


def predicted_timeline(
    schedule: str,
    costs: Costs,
    partition: Sequence[int],
    in_flight: int,
    *,
    num_batches: int | None = None,
    micro_batches: int = 1,
    virtual_stages: int = 1,
    stage_speed: Sequence[float] = (),
) -> Timeline:
    """The first mini-batches of a run as predicted, each stage with its own device."""
    setting = Setting(
        schedule=schedule,
        costs=costs,
        stages=len(partition) // virtual_stages,
        in_flight=in_flight,
        micro_batches=micro_batches,
        virtual_stages=virtual_stages,
        stage_speed=tuple(stage_speed),
    )
    return timeline_of(setting, partition, num_batches)


def program_of(setting: Setting, num_batches: int | None = None) -> Program:
    """The program that is simulated to predict a step: the same for every cut."""
    if num_batches is None:
        num_batches = NUM_PIPELINE_BATCHES if setting.is_pipeline else NUM_BATCHES
    return Program.of_schedule(
        setting.schedule,
        setting.stages,
        num_batches,
        micro_batches=setting.micro_batches,
        virtual_stages=setting.virtual_stages,
    )


def timeline_of(setting: Setting, partition: Sequence[int], num_batches: int | None = None) -> Timeline:
    """The first mini-batches of a run in this setting, cut so."""
    return simulate(program_of(setting, num_batches), action_durations(setting, partition), in_flight=setting.room)


def predict_step(setting: Setting, partition: Sequence[int]) -> StepPrediction:
    """The step of one partition; with `cores`, of stages and replicas that share so many processors.

    What computes while others compute beside it is slower by `Costs.contention`; the bound is not.
    """
    costs, cores = setting.costs, setting.cores
    durations = action_durations(setting, partition)
    timeline = timeline_of(setting, partition)
    bound_s = bound_of(setting, durations)
    bound = FORMULAS[setting.schedule]
    alone_s = sum(computing_s(setting, durations))
    if setting.cores is not None and costs.contention > 1.0:
        durations = durations.times(_slower(setting, timeline))
        timeline = simulate(program_of(setting), durations, in_flight=setting.room)
    computing = sum(computing_s(setting, durations))
    step_time_s = timeline.step_time_s
    shared = False
    if cores is not None:
        threads = costs.threads * setting.replicas * costs.processor_share
        if alone_s * threads / cores > bound_s:
            bound_s = alone_s * threads / cores
            bound = "sum(F+B)*threads/processors"
        # Messages too are packed and unpacked by the processors.
        messages = setting.micro_batches * (sum(durations.up_s) + sum(durations.down_s))
        work = (computing + messages) * threads / cores
        shared = work > step_time_s
        step_time_s = max(step_time_s, work)
    bubble = max(0.0, 1.0 - computing / (setting.stages * step_time_s)) if step_time_s > 0 else 0.0
    return StepPrediction(step_time_s, bubble, bound_s, bound, float(timeline.completed_s[0]), shared)


def _slower(setting: Setting, timeline: Timeline) -> list[float]:
    """How many times as long the computations of each virtual stage take while others compute beside it.

    `Costs.contention` is that of all processors; with fewer at work it is nearer to 1 in proportion. Only what keeps a
    processor busy gets slower: a block may also wait.
    """
    assert setting.cores is not None, "where each stage has a device of its own, none is in another's way"
    others = min(setting.stages * setting.replicas, setting.cores) - 1
    more = (setting.costs.contention - 1.0) * setting.costs.processor_share
    return [1.0 + more * share for share in timeline.crowding(others)] * setting.virtual_stages


def predict_evaluation(setting: Setting, partition: Sequence[int], num_batches: int) -> float:
    """Seconds of one evaluation over `num_batches` mini-batches; 0 where there are none.

    With virtual stages one mini-batch goes all the way before the next one starts.
    """
    if num_batches == 0:
        return 0.0
    durations = evaluation_durations(setting.costs, partition, setting.stage_speed)
    work = sum(durations.infer_s) + sum(durations.route_s) + sum(durations.up_s) + sum(durations.down_s)
    if setting.virtual_stages > 1:
        seconds = num_batches * (work + 2 * (setting.num_parts - 1) * durations.latency_s)
    else:
        program = Program.of_evaluation(setting.stages, num_batches)
        seconds = simulate(program, durations, in_flight=setting.in_flight).duration_s
    if setting.cores is None:
        return seconds
    threads = setting.costs.threads * setting.replicas * setting.costs.processor_share
    return max(seconds, num_batches * work * threads / setting.cores)
