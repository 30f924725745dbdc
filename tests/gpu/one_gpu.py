"""Real GPUs, fewer than a test has stages: they stand for as many as it needs, with NCCL between the stages.

NCCL refuses two processes on one GPU of a host, and it tells hosts apart by NCCL_HOSTID. So the stages go round the
GPUs, and those of each round are a host of their own to NCCL. Within a round it sends from GPU to GPU, and between
rounds through sockets, as between hosts. With one GPU each stage is a round. Stages that share a GPU compute in turns.
So this shows that runs over NCCL go on and what bits they have, not how long they take.
"""

from __future__ import annotations

import os
from types import ModuleType

import torch

from alray.core import accelerator
from alray.runtime.device import devices
from alray.runtime.stage.assignment import Assignment


def place(number: int, count: int) -> tuple[str, int]:
    """The host, to NCCL, and the GPU of the stage that was given GPU `number`, where there are `count`."""
    turn, gpu = divmod(number, count)
    return f"round {turn} of GPUs", gpu


def share_the_gpus(actor: ModuleType) -> None:
    """Have the stage of this process compute on a GPU that is there, whatever the number of the one it was given.

    CUDA has not begun in this process yet.

    Args:
        actor: alray.runtime.graph.actor.
    """

    def own_device(assignment: Assignment) -> torch.device:
        if assignment.device_kind == "cpu":
            return torch.device("cpu")
        os.environ["NCCL_HOSTID"], gpu = place(int(actor.given_gpus()[0]), accelerator.count())
        return devices.pick(assignment.device_kind, gpu=gpu)

    actor.own_device = own_device  # type: ignore[attr-defined]


def share_the_gpus_of_trials() -> None:
    """The same for a trial in one process, which has no neighbours."""
    devices.number_of_given = lambda given, device: place(int(given[0]), accelerator.count())[1]  # type: ignore[assignment]
