"""The memory each stage will need at its peak."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from alray.plan.costs import Costs
from alray.plan.partition import Matrix, interval_sums
from alray.plan.pipelines import compute_order
from alray.plan.plan import Memory
from alray.plan.setting import Setting


def stage_memory(costs: Costs, components: range, in_flight: int) -> Memory:
    """Predicted peak of a stage that holds `components` of a chain, bytes.

    One mini-batch at a time is between F and U in every schedule of local losses. A ring holds `in_flight`
    messages that wait and the one being worked on or sent. A checkpoint is written from a copy of weights, buffers
    and optimizer state.
    """
    held = [costs.components[index] for index in components]
    ring = in_flight + 1
    receives = ring * costs.components[components.start - 1].output_bytes if components.start > 0 else 0
    sends = ring * held[-1].output_bytes if components.stop < len(costs.components) else 0
    parameters = sum(component.parameter_bytes for component in held)
    optimizer = sum(component.optimizer_bytes for component in held)
    return Memory(
        parameters_bytes=parameters,
        gradients_bytes=sum(component.gradient_bytes for component in held),
        optimizer_bytes=optimizer,
        activations_bytes=sum(component.activation_bytes for component in held),
        channel_bytes=receives + sends,
        snapshot_bytes=parameters + optimizer,
    )


def pipeline_memory(setting: Setting, stage: int, runs: Sequence[range]) -> Memory:
    """Predicted peak of `stage` in a pipeline of backpropagation, bytes; `runs` are the components of its virtual
    stages.

    Of each micro-batch between its forward and the end of its backward the stage keeps what autograd needs, what it
    received and what it sent; one gradient more is on its way on each edge.
    """
    components, parts = setting.costs.components, setting.micro_batches
    held = [components[index] for own in runs for index in own]
    counts = held_micro_batches(setting.schedule, stage, setting.stages, parts, setting.virtual_stages)
    kept = np.array([sum(components[index].activation_bytes for index in own) for own in runs])
    channel = 0
    if setting.stages > 1:
        for own, most in zip(runs, counts.max(axis=0).tolist(), strict=True):
            below = components[own.start - 1].output_bytes if own.start > 0 else 0
            above = components[own.stop - 1].output_bytes if own.stop < len(components) else 0
            channel += (most + 1) * (below + above)
    parameters = sum(component.parameter_bytes for component in held)
    optimizer = sum(component.optimizer_bytes for component in held)
    return Memory(
        parameters_bytes=parameters,
        gradients_bytes=sum(component.gradient_bytes for component in held),
        optimizer_bytes=optimizer,
        activations_bytes=-(-int((counts @ kept).max()) // parts),
        channel_bytes=-(-channel // parts),
        snapshot_bytes=parameters + optimizer,
    )


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


def memory_of(setting: Setting, partition: Sequence[int], stage: int) -> Memory:
    """Predicted peak of one stage of a cut, bytes."""
    runs = stage_ranges(partition)[stage :: setting.stages]
    if setting.is_pipeline:
        return pipeline_memory(setting, stage, runs)
    return stage_memory(setting.costs, runs[0], setting.in_flight)


def memory_matrix(setting: Setting, stage: int) -> Matrix:
    """[n + 1, n + 1]; [i, j] with i < j: predicted peak in bytes if `stage` holds components i to j - 1 alone.

    The same as `memory_of` for settings without virtual stages, for all runs of components at once.
    """
    kept, copies = 1.0, float(setting.in_flight + 1)
    if setting.is_pipeline:
        most = int(held_micro_batches(setting.schedule, stage, setting.stages, setting.micro_batches).max())
        kept, copies = most / setting.micro_batches, (most + 1) / setting.micro_batches
    components = setting.costs.components
    own = interval_sums(
        [
            2.0 * (component.parameter_bytes + component.optimizer_bytes)
            + component.gradient_bytes
            + kept * component.activation_bytes
            for component in components
        ]
    )
    edge = np.array([0.0, *(copies * component.output_bytes for component in components)])
    edge[-1] = 0.0
    total: Matrix = own + edge[:, None] + edge[None, :]
    return total


def stage_ranges(partition: Sequence[int]) -> list[range]:
    """The components of each stage, counted from 0."""
    ranges = []
    first = 0
    for count in partition:
        ranges.append(range(first, first + count))
        first += count
    return ranges
