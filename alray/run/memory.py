"""Whether a machine can hold what a run asks of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from alray.errors import PlanError

if TYPE_CHECKING:
    from alray.nn.network import Network


def machine_memory_bytes() -> int:
    """Physical memory of this machine, or what the container may have of it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(physical, int(text)) if text.isdecimal() else physical


def require_memory(network: Network, memory_bytes: int) -> None:
    """Raise PlanError where the weights of one component and their gradients alone exceed `memory_bytes`.

    However many stages there are, a component lies on one of them, and the probe builds it on this machine.
    """
    for index in range(len(network)):
        weights_bytes = sum(tensor.nbytes for tensor in network.component(index, "meta").weights().values())
        if 2 * weights_bytes > memory_bytes:
            raise PlanError(
                f"its weights take {weights_bytes / 1e9:,.1f} GB and their gradients as much again, "
                f"and this machine has {memory_bytes / 1e9:,.1f} GB",
                key=f"model.components[{index}]",
                mend="make the component smaller, or the layers beside it (`method`)",
            )
