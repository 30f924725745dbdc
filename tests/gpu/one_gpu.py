"""One real GPU that stands for several: NCCL runs between processes that share it.

NCCL refuses two processes on one GPU of a host, and it tells hosts apart by NCCL_HOSTID. So here each process is a host
of its own to NCCL, which then sends through sockets, as between hosts. The processes compute in turns. So this shows
that runs over NCCL go on and what bits they have, not how long they take.
"""

from __future__ import annotations

import os
from types import ModuleType

import torch

from alray.runtime.device import devices
from alray.runtime.stage.assignment import Assignment


def share_the_gpu(actor: ModuleType) -> None:
    """Have the stage of this process compute on the GPU of this machine, whatever the number of the one it was given.

    CUDA has not begun in this process yet.

    Args:
        actor: alray.runtime.graph.actor.
    """
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    os.environ["NCCL_HOSTID"] = f"process {os.getpid()}"

    def own_device(assignment: Assignment) -> torch.device:
        return devices.pick(assignment.device_kind)

    actor.own_device = own_device  # type: ignore[attr-defined]
