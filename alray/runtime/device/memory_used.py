"""The memory that a stage really takes, measured for its process or GPU."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from alray.core import accelerator

_CPU = torch.device("cpu")
_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # Linux, proc(5): resets the peak of the resident set
_had_a_stage = False  # on the CPU


def memory_baseline(device: torch.device) -> int | None:
    """Return the memory in use before a stage is built, in bytes, and start measuring peaks.

    On a CPU it is the resident memory of this process. Two things are done first, so that they do not change the
    stage's figure: libraries load what they load with their first kernels, and the C library gives freed memory (of
    the probe, for example) back to the system. A later stage in this process uses what the first one left, so nothing
    measures it: None. On a GPU it is what torch's allocator has given out, the workspace that cuBLAS takes with its
    first matrix product included.
    """
    global _had_a_stage
    run_first_kernels(device)
    if accelerator.is_accelerator(device):
        return accelerator.start_memory_peak(device)
    if _had_a_stage:
        return None
    _had_a_stage = True
    gc.collect()
    _give_back_freed_memory()
    _begin_peak_anew()
    return _status_bytes("VmRSS")


def peak_memory_bytes(device: torch.device, baseline_bytes: int) -> int:
    """Return the largest memory in use above `baseline_bytes` since `memory_baseline`, in bytes.

    On a GPU this is torch's allocator, on a CPU the resident memory. The latter holds more than the stage's tensors:
    the buffers of kernels, memory that the allocator cannot reuse, and on stage 0 the data set.
    """
    if accelerator.is_accelerator(device):
        return max(0, accelerator.memory_peak_bytes(device) - baseline_bytes)
    return max(0, _status_bytes("VmHWM") - baseline_bytes)


def run_first_kernels(device: torch.device = _CPU, *, with_given_gradient: bool = False) -> None:
    """Run a small convolution, a matrix product and their backward pass.

    Args:
        with_given_gradient: run also a backward pass that begins with a given gradient, as in the stages of a pipeline
            below the last. torch imports sympy for the first one, which takes half a second.
    """
    with torch.random.fork_rng(devices=[]):
        network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 2))
        samples, labels = torch.zeros(2, 1, 4, 4, device=device), torch.zeros(2, dtype=torch.int64, device=device)
        functional.cross_entropy(network.to(device)(samples), labels).backward()
        if with_given_gradient:
            outputs = network(samples)
            outputs.backward(torch.zeros_like(outputs))


def _give_back_freed_memory() -> None:
    """Give freed memory back to the system, which `devices.configure` stops glibc from doing. Only glibc can do it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _begin_peak_anew() -> None:
    """Reset the peak. If the system cannot do this, the peak counts from the start of the process."""
    if _RESET.exists():
        try:
            _RESET.write_text(_RESET_PEAK)
        except PermissionError:  # as in some containers
            return


def _status_bytes(field: str) -> int:
    if not _STATUS.exists():
        return 0
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0
