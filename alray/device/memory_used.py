"""The memory a stage does take, measured on the process (or the device) it has to itself."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # Linux, proc(5): the peak of the resident set begins anew


def memory_baseline(device: torch.device) -> int:
    """What is held before a stage is built, bytes; peaks are measured from here on.

    On a CPU it is the resident memory of this process, once libraries have loaded what they load with their first
    kernels, and the C library has given back what others (the probe of the costs) have freed: otherwise the stage
    would be charged with the first, or let off what it finds of the second.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    _run_first_kernels()
    gc.collect()
    _give_back_freed_memory()
    _begin_peak_anew()
    return _status_bytes("VmRSS")


def peak_memory_bytes(device: torch.device, baseline_bytes: int) -> int:
    """Most memory held above `baseline_bytes` since then: by torch's allocator on a GPU, resident on a CPU.

    On a CPU that is more than the stage's tensors: kernels' own buffers, what the allocator cannot reuse, and on stage
    0 the data set.
    """
    if device.type == "cuda":
        return max(0, torch.cuda.max_memory_allocated(device) - baseline_bytes)
    return max(0, _status_bytes("VmHWM") - baseline_bytes)


def _run_first_kernels() -> None:
    """A convolution, a matrix product, their gradients and an optimizer's step, as small as they can be."""
    with torch.random.fork_rng(devices=[]):
        network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(network.parameters(), foreach=False)
        functional.cross_entropy(network(torch.zeros(2, 1, 4, 4)), torch.zeros(2, dtype=torch.int64)).backward()
        optimizer.step()


def _give_back_freed_memory() -> None:
    """Undo what `alray.device.devices` asks of glibc, to keep freed memory. Does nothing with other C libraries."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _begin_peak_anew() -> None:
    """A no-op where the system does not offer it: the peak then is that since the process began."""
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
