"""The effect of activation checkpointing on the costs of components: less memory, and a longer backward pass."""

from __future__ import annotations

from dataclasses import replace

from alray.prediction.costs import Costs


def recomputing(costs: Costs, wanted: bool, stages: int) -> Costs:
    """The costs of components that keep their input only, and run forward once more before each backward.

    During its backward, a component holds its input besides all that a backward without recomputing holds.

    Unless it is wanted, and on one stage, the costs stay as they are.

    Args:
        wanted: `pipeline.activation_checkpointing`.
    """
    if not wanted or stages == 1:
        return costs
    inputs = [costs.batch_bytes, *(component.output_bytes for component in costs.components[:-1])]
    return replace(
        costs,
        components=tuple(
            replace(
                component,
                activation_bytes=input_bytes,
                backward_peak_bytes=max(component.backward_peak_bytes, component.activation_bytes) + input_bytes,
                adding_peak_bytes=max(component.adding_peak_bytes, component.activation_bytes) + input_bytes,
                backward_s=component.backward_s + component.forward_s,
                backward_fixed_s=component.backward_fixed_s + component.forward_fixed_s,
            )
            for component, input_bytes in zip(costs.components, inputs, strict=True)
        ),
    )
