"""The simulated devices in the process of a stage."""

from __future__ import annotations

import os
from typing import Any

from alray.core import accelerator
from alray.runtime.rendezvous import edges, groups

from . import KIND, MACHINE, install
from .nccl import between_processes
from .order import Reserved


def give_devices() -> None:
    """The devices that this process sees, of which Ray may hide some, and the stand-in for NCCL between processes."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    install(count=len(visible.split(",")) if visible else 4)
    if limit := os.environ.get("ALRAY_TEST_MEMORY"):
        MACHINE.limit_bytes, MACHINE.shared = int(limit), Reserved()
    if accelerator.has_nccl(KIND):
        edges.nccl_group = groups.nccl_group = between_processes


def report_faults(actor: Any) -> None:
    """Have a stage answer no poll after what a GPU would punish, in whatever thread it came up."""
    poll = actor.poll

    def poll_unless_at_fault(self: Any, received: int) -> Any:
        if MACHINE.faults:
            raise MACHINE.faults[0]
        return poll(self, received)

    actor.poll = poll_unless_at_fault
