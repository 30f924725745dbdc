"""The memory each stage will need at its peak."""

from __future__ import annotations

from collections.abc import Sequence

from alray.plan.costs import Costs
from alray.plan.plan import Memory


def stage_memory(costs: Costs, components: range, in_flight: int) -> Memory:
    """Predicted peak of a stage that holds `components` of a chain, bytes.

    One mini-batch at a time is between F and U in every schedule. A ring holds `in_flight` messages that wait
    and the one being worked on or sent. A checkpoint is written from a copy of weights, buffers and optimizer
    state.
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


def stage_ranges(partition: Sequence[int]) -> list[range]:
    """The components of each stage, counted from 0."""
    ranges = []
    first = 0
    for count in partition:
        ranges.append(range(first, first + count))
        first += count
    return ranges
