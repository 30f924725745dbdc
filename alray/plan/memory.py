"""The memory each stage will need at its peak."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from alray.plan.partition import Matrix, interval_sums
from alray.plan.peaks import Moment, local_moments, pipeline_moments, price, run_peaks, turn_moments
from alray.plan.pipelines import compute_order
from alray.plan.plan import Memory
from alray.plan.setting import Setting


def memory_of(setting: Setting, partition: Sequence[int], stage: int) -> Memory:
    """Predicted peak of one stage of a cut, bytes.

    A checkpoint is written from a copy of weights, buffers and optimizer state.
    """
    components = setting.costs.components
    runs = stage_ranges(partition)[stage :: setting.stages]
    if setting.stages == 1:  # its virtual stages follow each other: a micro-batch goes all the way up, then down
        runs = [range(len(components))]
    held = [components[index] for own in runs for index in own]
    peaks = run_peaks(setting.costs, setting.micro_batches)
    priced = [price(moment, [peaks.at(own) for own in runs]) for moment in _moments(setting, stage)]
    most = max(priced, key=lambda each: float(each.total))
    parameters = sum(component.parameter_bytes for component in held)
    optimizer = sum(component.optimizer_bytes for component in held)
    gradients, activations = ceil(most.gradients), ceil(most.activations)
    return Memory(
        parameters_bytes=parameters,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        channel_bytes=_channel_bytes(setting, stage, runs),
        snapshot_bytes=parameters + optimizer,
        temporary_bytes=ceil(most.total) - gradients - activations,
        batch_bytes=setting.costs.batch_bytes if stage == 0 else 0,
    )


def memory_matrix(setting: Setting, stage: int) -> Matrix:
    """[n + 1, n + 1]; [i, j] with i < j: predicted peak in bytes if `stage` holds components i to j - 1 alone.

    The same as `memory_of` for settings without virtual stages, for all runs of components at once.
    """
    components = setting.costs.components
    peaks = run_peaks(setting.costs, setting.micro_batches)
    total: Matrix = np.maximum.reduce([price(moment, [peaks]).total for moment in _moments(setting, stage)])
    total = total + 2.0 * interval_sums(
        [float(component.parameter_bytes + component.optimizer_bytes) for component in components]
    )
    below, above = _edge_copies(setting, stage)
    edge = np.array([0.0, *(float(component.output_bytes) for component in components)])
    edge[-1] = 0.0
    total = total + below * edge[:, None] + above * edge[None, :]
    if stage == 0:
        total = total + setting.costs.batch_bytes
    return total


def _moments(setting: Setting, stage: int) -> tuple[Moment, ...]:
    if setting.is_pipeline and setting.stages > 1:
        return pipeline_moments(setting.schedule, stage, setting.stages, setting.micro_batches, setting.virtual_stages)
    if setting.is_pipeline or setting.schedule == "single":
        return turn_moments(setting.micro_batches)
    return local_moments()


def _channel_bytes(setting: Setting, stage: int, runs: Sequence[range]) -> int:
    components = setting.costs.components
    total = 0.0
    for place, own in enumerate(runs):
        below, above = _edge_copies(setting, stage, place)
        total += below * components[own.start - 1].output_bytes if own.start > 0 else 0.0
        total += above * components[own.stop - 1].output_bytes if own.stop < len(components) else 0.0
    return ceil(total)


def _edge_copies(setting: Setting, stage: int, place: int = 0) -> tuple[float, float]:
    """How often the message of a whole mini-batch is held on the edges below and above a virtual stage.

    Local losses: a ring holds `in_flight` messages that wait and the one being worked on or sent. Pipelines: of each
    micro-batch between forward and backward what was received, and one gradient on its way down. (What was sent up is
    what the forward left, and a gradient that comes is part of a backward's peak.)
    """
    if setting.stages == 1:
        return 0.0, 0.0
    if not setting.is_pipeline:
        return setting.in_flight + 1.0, setting.in_flight + 1.0
    parts = setting.micro_batches
    counts = held_micro_batches(setting.schedule, stage, setting.stages, parts, setting.virtual_stages)
    return (int(counts[:, place].max()) + 1) / parts, 0.0


@lru_cache(maxsize=256)
def held_micro_batches(
    schedule: str, stage: int, stages: int, micro_batches: int, virtual_stages: int = 1
) -> NDArray[np.int64]:
    """[computations, virtual stages of the stage]: micro-batches whose activations are held behind each computation
    of a mini-batch: forwards done less backwards done, where a split backward is done when its second half is."""
    order = compute_order(schedule, stage, stages, micro_batches, virtual_stages)
    change = np.zeros((len(order), virtual_stages), dtype=np.int64)
    for place, (kind, own, _) in enumerate(order):
        change[place, own // stages] = {"F": 1, "I": 0}.get(kind, -1)
    held: NDArray[np.int64] = np.cumsum(change, axis=0)
    held.flags.writeable = False  # the cache gives it out again
    return held


def stage_ranges(partition: Sequence[int]) -> list[range]:
    """The components of each stage, counted from 0."""
    ranges = []
    first = 0
    for count in partition:
        ranges.append(range(first, first + count))
        first += count
    return ranges
