"""Words on where the figures of a plan come from, and how sure they are."""

from __future__ import annotations

from alray.core.counting import counted
from alray.planning.prediction.costs import Costs
from alray.planning.prediction.machines import Machines

PREDICTED = (0.72, 1.29)
"""Predicted over measured step time, of nine in ten settings of the studies (docs/predictions.md). A test ties both
numbers here to the results that the pages are made of."""
HOW_SURE = "nine in ten predictions from measured components were {:.2f} to {:.2f} of the measured step"
"""Words for `PREDICTED`."""
PREDICTED_MEMORY = 0.17
"""How far the predicted memory of tensors was from the measured one at most (docs/benchmarks.md)."""
MEASURED_SPREAD = (1 / PREDICTED[1], 1 / PREDICTED[0])
"""The least and the most that a step took over its prediction from measured components."""


def basis_of(costs: Costs, machines: Machines | None = None, *, replicas: int = 1) -> dict[str, str]:
    """A sentence each for the times, the memory and the links of a plan with these costs, and for averages of replicas
    if they are not known.

    Args:
        machines: that it is for; None: this one.
        replicas: that average gradients as the costs say.
    """
    found = {"times": _times(costs), "memory": _memory(costs, machines)}
    if machines is not None:
        found["links"] = _links(machines)
        if replicas > 1 and not any(each.reduce_s for each in costs.components):
            found["averages"] = "averages of replicas are not counted: nothing is known of their time"
    return found


def _times(costs: Costs) -> str:
    samples = f"{costs.batch_size} samples a mini-batch"
    threads = counted(costs.threads, "thread")
    words = {
        "probe": f"costs measured on this machine, {costs.device}, {threads}, {samples}; {HOW_SURE.format(*PREDICTED)}",
        "estimated": f"costs estimated by counting, for {samples}; --probe measures them",
        "given": f"costs given in the spec; memory and messages estimated, for {samples}",
    }
    if costs.source in words:
        return words[costs.source]
    low, high = costs.spread
    sure = f"the true times may be {low:.2f} to {high:.2f} of these: {costs.spread_origin}"
    return f"costs for {samples}: {costs.origin}; {sure}"


def _memory(costs: Costs, machines: Machines | None) -> str:
    if costs.chain:
        return "memory: weights and outputs as the file says; what else a stage keeps is not known"
    left = ""
    if machines is not None and any(kind.accelerator and kind.memory_bytes for kind in machines.kinds):
        left = ", and 1 GB of each device is left to libraries"
    return f"memory: tensors counted, within {PREDICTED_MEMORY:.0%} of what was measured here{left}"


def _links(machines: Machines) -> str:
    links = []
    for group in machines.groups:
        name = group.device.name
        if group.devices > 1 and group.within is not None:
            links.append(f"between two {name} of a node {group.within}" + (", as published" if group.published else ""))
        if group.card is not None and len(machines.devices) > group.devices:
            links.append(f"the card of a node of {name} {group.card}")
    if machines.line is not None:
        links.append(f"between groups {machines.line}")
    if not links:
        return "links: none are given"
    return f"links: {'; '.join(links)}; other traffic on them is not counted"
