"""The predicted memory of each stage at its peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import ceil

import numpy as np

from alray.planning.prediction.costs import ComponentCosts
from alray.planning.prediction.partition import Matrix, Places, StageCost, run_sums
from alray.planning.prediction.peaks import (
    MemoryMoment,
    local_moments,
    pipeline_moments,
    price,
    run_peaks,
    turn_moments,
)
from alray.planning.prediction.plan import Memory
from alray.planning.prediction.setting import StepSetting
from alray.planning.schedules.edge_slots import most_in_use
from alray.planning.schedules.table import SCHEDULES


def memory_of(setting: StepSetting, partition: Sequence[int], stage: int) -> Memory:
    """Predicted peak of one stage of a cut, bytes.

    It is the memory of the stage's device. A checkpoint is written from a copy of weights, buffers and optimizer state.
    Where gradients are late, there are further versions of the weights, each as large as the gradients.
    """
    components = setting.costs.components
    ranges = stage_ranges(partition)
    runs = [ranges[virtual] for virtual in setting.held(stage)]
    if setting.stages == 1:  # a micro-batch goes through all virtual stages and back before the next one
        runs = [range(len(components))]
    held = [components[index] for own in runs for index in own]
    peaks_of = run_peaks(setting.costs, setting.micro_batches)
    peaks = [peaks_of(own.start, own.stop) for own in runs]
    priced = [price(moment, peaks) for moment in _moments(setting, stage)]
    most = max(priced, key=lambda each: float(each.total))
    versions = SCHEDULES[setting.schedule].gradient_delay
    parameters = sum(component.parameter_bytes + versions * component.gradient_bytes for component in held)
    optimizer = sum(_state_bytes(component, setting) for component in held)
    memory = setting.memory(stage)
    gradients, activations = ceil(most.gradients), ceil(most.activations)
    return Memory(
        parameters_bytes=parameters,
        gradients_bytes=gradients + sum(_average_bytes(component, setting) for component in held),
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        channel_bytes=_channel_bytes(setting, stage, runs) + _copy_bytes(setting, stage),
        snapshot_bytes=parameters + optimizer if memory.snapshot else 0,
        temporary_bytes=ceil(most.total) - gradients - activations,
        batch_bytes=memory.batches * setting.costs.batch_bytes if stage == 0 else 0,
    )


def run_bytes(setting: StepSetting) -> StageCost:
    """The totals of `memory_of` in settings without virtual stages, for many runs of components at once; without what a
    stage sends they are not rounded up."""
    components = setting.costs.components
    versions = SCHEDULES[setting.schedule].gradient_delay
    peaks_of = run_peaks(setting.costs, setting.micro_batches)
    kept = run_sums(
        [
            float(each.parameter_bytes + versions * each.gradient_bytes + _state_bytes(each, setting))
            for each in components
        ]
    )
    averages = run_sums([float(_average_bytes(each, setting)) for each in components])
    edge = np.array([0.0, *(float(component.output_bytes) for component in components)])
    edge[-1] = 0.0

    def of(stage: int, first: Places, ends: Places, *, sends: bool = True) -> Matrix:
        peaks = peaks_of(first, ends)
        if not sends:
            peaks = replace(peaks, output=np.zeros(()))
        total: Matrix = reduce(np.maximum, (price(moment, [peaks]).total for moment in _moments(setting, stage)))
        below, above = _edge_copies(setting, stage)
        messages = below * edge[first] + above * sends * edge[ends]
        if sends:  # as `memory_of` does
            total, messages = np.ceil(total), np.ceil(messages)
        memory = setting.memory(stage)
        total = total + (2.0 if memory.snapshot else 1.0) * kept(first, ends) + averages(first, ends)
        total = total + _copy_bytes(setting, stage) + messages
        return total + memory.batches * setting.costs.batch_bytes if stage == 0 else total

    return of


def _state_bytes(component: ComponentCosts, setting: StepSetting) -> int:
    """What a component keeps between two updates, besides its weights."""
    return component.optimizer_bytes + (component.average_state_bytes if setting.replicas > 1 else 0)


def _average_bytes(component: ComponentCosts, setting: StepSetting) -> int:
    return component.average_bytes if setting.replicas > 1 else 0


def _moments(setting: StepSetting, stage: int) -> tuple[MemoryMoment, ...]:
    if SCHEDULES[setting.schedule].local_losses:
        # On one stage virtual stages are run as one.
        return local_moments(
            setting.schedule, stage, setting.stages, setting.virtual_stages if setting.stages > 1 else 1
        )
    if setting.stages == 1:
        return turn_moments(setting.micro_batches)
    parts = setting.micro_batches, setting.virtual_stages
    return pipeline_moments(setting.schedule, stage, setting.stages, *parts, recomputes=setting.recomputes)


def _channel_bytes(setting: StepSetting, stage: int, runs: Sequence[range]) -> int:
    components = setting.costs.components
    if setting.virtual_stages > 1 and SCHEDULES[setting.schedule].local_losses:
        received = [components[own.start - 1].output_bytes for own in runs if own.start > 0]
        sent = [components[own.stop - 1].output_bytes for own in runs if own.stop < len(components)]
        memory = setting.memory(stage)
        held = _ring_bytes(setting, received, memory.waiting)
        return held + (_ring_bytes(setting, sent, True) if memory.sent else 0)
    total = 0.0
    for index, own in enumerate(runs):
        below, above = _edge_copies(setting, stage, index)
        total += below * components[own.start - 1].output_bytes if own.start > 0 else 0.0
        total += above * components[own.stop - 1].output_bytes if own.stop < len(components) else 0.0
    return ceil(total)


def _copy_bytes(setting: StepSetting, stage: int) -> int:
    """The buffers of the edges that carry copies from the last stage: two for each, and one where copies that wait are
    not in this memory."""
    if setting.stages == 1:
        return 0
    memory, copy = setting.memory(stage), setting.costs.copy_bytes
    if stage == setting.stages - 1:
        return 2 * copy * (setting.stages - 1) if memory.sent else 0
    return 2 * copy if memory.waiting else copy


def _ring_bytes(setting: StepSetting, messages: Sequence[int], waiting: bool) -> int:
    """The buffers of an edge with local losses that carries all these messages of a mini-batch, bytes each. They are as
    large as the largest of them, and hold the messages of `in_flight` mini-batches and one that is worked on.

    Args:
        waiting: whether messages that wait are in this memory.
    """
    if setting.stages == 1 or not messages:
        return 0
    return (setting.in_flight * len(messages) * waiting + 1) * max(messages)


def _edge_copies(setting: StepSetting, stage: int, index: int = 0) -> tuple[float, float]:
    """How many copies of a whole mini-batch's message are in memory on the edges below and above a virtual stage.

    Local losses: a ring holds `in_flight` messages that wait, and one that is being worked on or sent; of both,
    `Setting.memory` says what is in this memory. Pipelines: a slot of the ring for each micro-batch that has come and
    whose backward is not done, and one gradient on its way down. A gradient that arrives belongs to the peak of a
    backward.
    """
    if setting.stages == 1:
        return 0.0, 0.0
    if not SCHEDULES[setting.schedule].is_pipeline:
        memory, ring = setting.memory(stage), setting.in_flight + 1.0
        return ring if memory.waiting else 1.0, ring if memory.sent else 0.0
    # For each virtual stage of the stage, the stage that its input comes from.
    sources = [setting.place(virtual - 1, setting.stages) if virtual else None for virtual in setting.held(stage)]
    below, parts = sources[index], setting.micro_batches
    if below is None:
        return 0.0, 0.0
    slots = most_in_use(setting.schedule, below, stage, setting.stages, parts, setting.virtual_stages, down=False)
    return (slots / sources.count(below) + 1) / parts, 0.0


def stage_ranges(partition: Sequence[int]) -> list[range]:
    """The components of each stage, counted from 0."""
    ranges = []
    first = 0
    for count in partition:
        ranges.append(range(first, first + count))
        first += count
    return ranges
