"""Predictions of a partition: the time of its steps and of its evaluations, found by simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from alray.planning.prediction.program import Program
from alray.planning.prediction.seconds import RunSeconds, computing_s, copies_s
from alray.planning.prediction.setting import StepLayout, StepSetting
from alray.planning.prediction.simulate import simulate, simulation_of, unhindered_steps
from alray.planning.prediction.timeline import Timeline
from alray.planning.schedules.evaluation import evaluation_actions

NUM_BATCHES = 64  # simulated mini-batches: enough to reach the steady state
NUM_DRAINED_BATCHES = 8  # pipelines and barriers drain the stages, if not after each mini-batch, then soon
_FEW_BATCHES = 3  # of a large pipeline: the first one fills it, the next ones take a step each
_LARGE = 1 << 12  # computations of a mini-batch's forward


@dataclass(frozen=True)
class StepPrediction:
    """The predicted step: one mini-batch in steady state, and what bounds it."""

    step_time_s: float
    bubble: float | None  # None where stages take turns: while one computes, the others have to wait
    first_step_s: float  # of the first mini-batch, until all stages are done with it
    shared: bool  # whether stages share too few processors, so that these determine the step time
    even_step_s: float  # the step if every computation always took its mean


def program_of(setting: StepLayout, num_batches: int | None = None) -> Program:
    """The program that is simulated to predict a step. It is the same for every cut.

    Args:
        num_batches: mini-batches to simulate; None: enough for the steady state.
    """
    return _program(
        setting.scheduled,
        setting.stages,
        num_batches or simulated_batches(setting),
        micro_batches=setting.micro_batches,
        virtual_stages=setting.virtual_stages,
    )


def simulated_batches(setting: StepLayout) -> int:
    """How many mini-batches are simulated to predict a step."""
    schedule = setting.scheduled
    if schedule.is_pipeline and setting.num_parts * setting.micro_batches > _LARGE:
        return _FEW_BATCHES + schedule.gradient_delay
    return NUM_DRAINED_BATCHES if schedule.drains(setting.stages) else NUM_BATCHES


_program = lru_cache(maxsize=4)(Program.of_schedule)


def timeline_of(setting: StepLayout, partition: Sequence[int], num_batches: int | None = None) -> Timeline:
    """The timeline of the first mini-batches of a run with this layout and partition, with a device for each stage.

    Args:
        num_batches: as in `program_of`.
    """
    durations = RunSeconds(setting).of_cuts(partition)
    return simulate(program_of(setting, num_batches), durations, in_flight=setting.in_flight)


def predict_step(setting: StepSetting, partition: Sequence[int]) -> StepPrediction:
    """Predict the step of one partition by simulating it.

    With `setting.cores` all stages and replicas share that many processors. Computations that run at the same time then
    slow each other down by `Costs.contention`, and the step takes at least as long as the processors need for all work.
    Nor is a step shorter than its copies take the link (`copies_s`). Where stages take
    turns in one process, the step is the sum of all their work.

    Where computations are uneven (`Costs.jitter_s`), stages and replicas wait for whichever takes longer this time. The
    step is then the median of simulated ones, and with R replicas the median of the longest of R.
    """
    costs, cores = setting.costs, setting.cores
    durations = RunSeconds(setting).of_cuts(partition)
    if setting.in_turns:
        work_s = setting.replicas * sum(computing_s(setting, durations))
        return StepPrediction(work_s, None, first_step_s=work_s, shared=False, even_step_s=work_s)
    timeline = timeline_of(setting, partition)
    if cores is not None and costs.contention > 1.0:
        durations = durations.times(_slower(setting, timeline))
        timeline = simulate(program_of(setting), durations, in_flight=setting.in_flight)
    even_step_s = step_time_s = timeline.step_time_s
    if costs.jitter_s > 0.0 and setting.stages * setting.replicas > 1:
        simulation = simulation_of(program_of(setting), setting.in_flight, durations.lines)
        steps = simulation.uneven_steps(durations, costs.jitter_s)
        step_time_s = max(step_time_s, float(np.quantile(steps, 0.5 ** (1.0 / setting.replicas))))
    least_s, shared = copies_s(setting), False
    if cores is not None:
        # The processors pack and unpack the messages too.
        messages = setting.micro_batches * (sum(durations.up_s) + sum(durations.down_s)) + sum(durations.labels_up_s)
        work_s = (sum(computing_s(setting, durations)) + messages) * _threads(setting) / cores
        shared = work_s > max(step_time_s, least_s)
        least_s = max(least_s, work_s)
    step_time_s, even_step_s = max(step_time_s, least_s), max(even_step_s, least_s)
    computing = sum(computing_s(setting, durations, averages=False))
    bubble = max(0.0, 1.0 - computing / (setting.stages * step_time_s)) if step_time_s > 0 else 0.0
    return StepPrediction(step_time_s, bubble, float(timeline.completed_s[0]), shared, even_step_s)


def bound_of(setting: StepSetting, partition: Sequence[int]) -> float:
    """Seconds that no step of this partition is below: if messages take no time and always find room, and stages do not
    slow each other down. Nor is a step shorter than the processors need for all work."""
    durations = RunSeconds(setting).of_cuts(partition)
    work_s = sum(computing_s(setting, durations))
    if setting.in_turns:
        return setting.replicas * work_s
    bound_s = float(unhindered_steps(program_of(setting), durations)[0])
    return bound_s if setting.cores is None else max(bound_s, work_s * _threads(setting) / setting.cores)


def _threads(setting: StepSetting) -> float:
    """Processors that the computation of one stage keeps busy, in all replicas."""
    return setting.costs.threads * setting.replicas * setting.costs.processor_share


def _slower(setting: StepSetting, timeline: Timeline) -> list[float]:
    """For each virtual stage, the factor by which its computations slow down because other stages compute too.

    `Costs.contention` is the factor beside as many others as it was measured with. Beside fewer, the slowdown is their
    share of it. It applies to the time that keeps a processor busy, not to the time in which a block waits.
    """
    assert setting.cores is not None, "there is no contention where each stage has its own device"
    others = setting.costs.beside or min(setting.stages * setting.replicas, setting.cores) - 1
    more = (setting.costs.contention - 1.0) * setting.costs.processor_share
    crowding = timeline.crowding(others, setting.replicas)
    return [1.0 + more * crowding[stage] for stage in setting.holders]


def predict_evaluation(setting: StepSetting, partition: Sequence[int], num_batches: int) -> float:
    """Seconds of one evaluation over `num_batches` mini-batches; 0 where there are none.

    One replica evaluates, while the others wait. With virtual stages each mini-batch goes through all of them before
    the next one starts.
    """
    if num_batches == 0:
        return 0.0
    durations = RunSeconds(setting).of_evaluation(partition)
    work = sum(map(sum, durations.computing.values())) + sum(durations.up_s) + sum(durations.down_s)
    if setting.virtual_stages > 1:
        between = sum(lower != upper for lower, upper in pairwise(setting.holders))
        messages = 2 * between * durations.latency_s + 2 * sum(durations.link_latency_s)
        messages += sum(durations.up_link_s) + sum(durations.down_link_s)
        seconds = num_batches * (work + messages)
    else:
        lists = (evaluation_actions(stage, setting.stages, num_batches) for stage in range(setting.stages))
        seconds = simulate(Program.of(lists), durations, in_flight=setting.in_flight).duration_s
    if setting.cores is None:
        return seconds
    threads = setting.costs.threads * setting.costs.processor_share
    return max(seconds, num_batches * work * threads / setting.cores)
