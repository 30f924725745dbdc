"""Errors of running out of memory: how to recognise them, and the message for the user."""

from __future__ import annotations

import traceback
from dataclasses import replace

import torch

from alray.core.errors import Problem, StageError, UserCodeError
from alray.core.system_errors import NO_GPU_MEMORY, NO_HOST_MEMORY
from alray.planning.prediction.plan import Plan
from alray.planning.schedules.table import SCHEDULES


def is_out_of_memory(fault: BaseException) -> bool:
    """Whether the error, or what a user's code raised, means that memory was requested and not available."""
    if isinstance(fault, UserCodeError) and fault.__cause__ is not None:
        fault = fault.__cause__
    if isinstance(fault, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(fault, RuntimeError) and any(
        part in str(fault).lower() for part in (*NO_HOST_MEMORY, *NO_GPU_MEMORY)
    )


def came_from(fault: BaseException | None) -> list[BaseException]:
    """The error, and those that it came from."""
    left, found = [fault], list[BaseException]()
    while left:
        each = left.pop()
        if each is not None and all(each is not other for other in found):
            found.append(each)
            left += [each.__cause__, each.__context__]
    return found


def clear_frames(fault: BaseException | None) -> None:
    """Let go of all that the functions held that an error, and those it came from, went through. The error may stay."""
    for each in came_from(fault):
        traceback.clear_frames(each.__traceback__)


def out_of_memory(fault: BaseException, plan: Plan, stage: int) -> StageError:
    """Return the error of a stage that ran out of memory: what it requested, what the plan predicted, what helps."""
    own = plan.stage_plans[stage]
    activations = own.memory.activations_bytes + own.memory.temporary_bytes
    message = (
        f"{own.title} ran out of memory: {words_of(fault)}; the plan predicts "
        f"{_size(own.memory.total_bytes)} in total, of which {_size(activations)} are activations"
    )
    return StageError.of((problem_of(fault, message, hint_for(plan.schedule)),))


def problem_of(fault: BaseException, message: str, hint: str) -> Problem:
    """What to tell of an error of running out of memory: with file, line, key and traceback of a user's code, if that
    raised it."""
    known = fault.problems[0] if isinstance(fault, UserCodeError) else Problem("")
    return replace(known, message=message, hint=hint)


def hint_for(schedule: str) -> str:
    """Ways to make a stage of this schedule need less memory."""
    cut = "raise pipeline.micro_batches (or set it to auto), " if SCHEDULES[schedule].cuts_mini_batches else ""
    return f"{cut}use more stages, a smaller data.batch_size, or a device with more memory"


def words_of(fault: BaseException) -> str:
    """Return the error's message, in which torch says how much was requested."""
    if isinstance(fault, UserCodeError):
        return fault.problems[0].message
    text = str(fault).strip() or "no message"
    return f"{type(fault).__name__}: {text}"


def _size(nbytes: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if nbytes >= size:
            return f"{nbytes / size:,.1f} {unit}"
    return f"{nbytes / 1e3:,.1f} kB"
