"""Out of memory: what is recognised, and the error for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from alray.core.errors import UserCodeError
from alray.runtime.device.out_of_memory import is_out_of_memory, out_of_memory

CPU_TEXT = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
CUDA_TEXT = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1 is free."
)


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError(CPU_TEXT + "allocate 4503599627370496 bytes. Error code 12"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 64 bytes."),
        torch.OutOfMemoryError(CUDA_TEXT),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        torch.OutOfMemoryError("the device is full"),
        MemoryError(),
    ],
)
def test_what_is_out_of_memory(fault: Exception) -> None:
    assert is_out_of_memory(fault)


@pytest.mark.parametrize("fault", [RuntimeError("shapes differ"), ValueError("out of memory"), KeyError("x")])
def test_what_is_not(fault: Exception) -> None:
    assert not is_out_of_memory(fault)


def test_torchs_own_error_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.few
@pytest.mark.parametrize(
    ("overrides", "hint"),
    [
        ((), "data.batch_size"),
        (
            (
                "method={kind: backpropagation}",
                "pipeline={schedule: gpipe, micro_batches: 2, micro_batch_norm: accept}",
            ),
            "pipeline.micro_batches",
        ),
    ],
)
def test_the_need_and_the_mend_are_told(
    make_planner: Callable[..., Any], overrides: tuple[str, ...], hint: str
) -> None:
    planner = make_planner(*overrides)
    plan = planner.plan(planner.costs(probe=False))
    (problem,) = out_of_memory(RuntimeError(CPU_TEXT + "allocate 5000000 bytes."), plan, 0).problems
    need = f"{plan.stage_plans[0].memory.total_bytes / 1e3:,.1f} kB in total"
    assert problem.message.startswith("stage 0 (components 0 to 1) ran out of memory: ")
    assert "allocate 5000000 bytes." in problem.message and need in problem.message
    assert hint in problem.hint


def test_what_a_block_raised_is_told_once_and_where(make_planner: Callable[..., Any]) -> None:
    planner = make_planner()
    raised = "block `python:own.Hungry` raised MemoryError in the forward pass of component 1: no message"
    fault = UserCodeError(raised, file="own.py", line=7, key="model.components[1]", hint="end other programs")
    fault.__cause__ = MemoryError()
    (problem,) = out_of_memory(fault, planner.plan(planner.costs(probe=False)), 0).problems
    assert (problem.file, problem.line, problem.key) == ("own.py", 7, "model.components[1]")
    assert problem.message.startswith(f"stage 0 (components 0 to 1) ran out of memory: {raised}; the plan predicts ")
    assert "end other programs" not in str(problem)
