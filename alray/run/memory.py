"""The memory of a machine, and what each stage may hold of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from alray.errors import PlanError
from alray.spec.models import Spec

if TYPE_CHECKING:
    import torch

    from alray.nn.network import Network


def machine_memory_bytes() -> int:
    """Physical memory of this machine, or the container's limit if that is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(physical, int(text)) if text.isdecimal() else physical


def stage_memory_limits(spec: Spec, stages: int, replicas: int, device: torch.device) -> tuple[int, ...]:
    """The memory limit of each stage in bytes.

    It is `resources.memory_bytes` if the spec gives it; else the `memory` that the stage asks Ray for; else an equal
    part of its device's memory among the stages there. The device is the stage's GPU, or this machine for a CPU.
    """
    resources = spec.resources
    if resources.memory_bytes is not None:
        return (resources.memory_bytes,) * stages
    asked = [bundle.get("memory") for bundle in resources.bundles(stages)]
    theirs = _device_shares(stages, replicas, device)
    return tuple(share if own is None else int(own) for own, share in zip(asked, theirs, strict=False))


def _device_shares(stages: int, replicas: int, device: torch.device) -> list[int]:
    if device.type != "cuda":
        return [machine_memory_bytes() // (stages * replicas)] * stages
    import torch

    from alray.device import devices

    places = [devices.pick("cuda", local_index=stage) for stage in range(stages)]
    return [torch.cuda.get_device_properties(own).total_memory // places.count(own) for own in places]


def require_memory(network: Network, memory_bytes: int) -> None:
    """Raise PlanError if the weights of one component and their gradients need more than `memory_bytes`.

    A component is never divided among stages, and the probe builds each one on this machine.
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
