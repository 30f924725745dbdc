"""Out of memory: which faults are that, and what a user is told of them."""

from __future__ import annotations

import re

import torch

from alray.errors import StageError
from alray.plan.plan import Plan
from alray.schedules.table import SCHEDULES

_TELLS = ("not enough memory", "can't allocate memory", "out of memory")
"""What torch's errors say, in small letters; those of a CPU's allocator are plain RuntimeErrors."""
_ASKED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|KiB|MiB|GiB|TiB)", re.IGNORECASE)
_UNITS = {"bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether the fault is that memory was asked for and not there."""
    if isinstance(fault, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(fault, RuntimeError) and any(tell in str(fault).lower() for tell in _TELLS)


def asked_bytes(fault: BaseException) -> int | None:
    """What was asked for at once, bytes; None where the fault does not say."""
    found = _ASKED.search(str(fault))
    return int(float(found[1]) * _UNITS[found[2].lower()]) if found is not None else None


def out_of_memory(fault: BaseException, plan: Plan, stage: int) -> StageError:
    """The error of a stage that ran out of memory: what it needs, asked for and predicted, and what helps."""
    own = plan.stage_plans[stage]
    activations = own.memory.activations_bytes + own.memory.temporary_bytes
    return StageError(
        f"stage {stage} (components {own.first} to {own.last}) ran out of memory: {asked_text(fault)}; the plan "
        f"predicts {_size(own.memory.total_bytes)} in all, {_size(activations)} of it activations",
        mend=mend_for(plan.schedule),
    )


def mend_for(schedule: str) -> str:
    """What makes a stage of this schedule need less."""
    cut = "raise pipeline.micro_batches (or set it to auto), " if SCHEDULES[schedule].cuts_mini_batches else ""
    return f"{cut}use more stages, a smaller data.batch_size, or a device with more memory"


def asked_text(fault: BaseException) -> str:
    """What was asked for, in words; the fault's own message where it does not say."""
    asked = asked_bytes(fault)
    return f"it asked for {_size(asked)} at once" if asked is not None else f"{type(fault).__name__}: {fault}"


def _size(nbytes: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if nbytes >= size:
            return f"{nbytes / size:,.1f} {unit}"
    return f"{nbytes / 1e3:,.1f} kB"
