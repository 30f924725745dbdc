"""The device on which a stage computes, and the settings that make its bits reproducible."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from alray import __version__
from alray.draws import put_back
from alray.errors import PlanError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def settle(threads: int, deterministic: bool) -> None:
    """Set the number of threads and whether only deterministic algorithms are used. On CUDA they always are.

    The number of threads changes the bits: a sum over two threads is rounded differently than a sum over one. OpenMP
    keeps this number for each calling thread, so the thread that computes must call this function.
    """
    _keep_memory()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = False
    # `torch.use_deterministic_algorithms` does the same, and imports torch's compiler, which takes a second.
    torch.set_deterministic_debug_mode("error" if deterministic or torch.cuda.is_available() else "default")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _keep_memory() -> None:
    """Make glibc keep freed memory. Does nothing if the C library has no `mallopt`.

    Activations are allocated and freed in every mini-batch. Returning their pages to the system and faulting them in
    again took 5 % of a step on two cores.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for parameter, value in ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, 2**31 - 1)):
        mallopt(parameter, value)


@contextmanager
def settled(threads: int, deterministic: bool, device: torch.device) -> Iterator[None]:
    """Call `settle`, and restore threads, determinism and the state of random numbers at the end."""
    threads_before = torch.get_num_threads()
    deterministic_before = torch.get_deterministic_debug_mode()
    benchmark_before = torch.backends.cudnn.benchmark
    fills_before = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with put_back(device):
        try:
            settle(threads, deterministic)
            yield
        finally:
            torch.set_num_threads(threads_before)
            torch.set_deterministic_debug_mode(deterministic_before)
            torch.backends.cudnn.benchmark = benchmark_before
            torch.utils.deterministic.fill_uninitialized_memory = fills_before  # type: ignore[attr-defined]


def pick(device: str, *, local_index: int = 0) -> torch.device:
    """Return the device of this kind, `cpu` or `cuda`. Raises PlanError if the machine has no GPU for `cuda`.

    local_index: number of the GPU on this machine; numbers beyond the last GPU start again at the first.
    """
    available = torch.cuda.device_count()
    if device == "cuda" and available == 0:
        raise PlanError(
            "this machine has no GPU that torch can use",
            key="resources.device",
            mend="set resources.device=cpu, or run where there are GPUs",
        )
    return torch.device("cpu") if device == "cpu" else torch.device("cuda", local_index % available)


def device_name(device: torch.device) -> str:
    """Return the model of the GPU, or of the processor with its instruction set.

    Two runs give the same bits only on devices of the same name.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()} ({torch.backends.cpu.get_cpu_capability()})"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and hardware. A resume compares them with its own; a run records them."""
    return {
        "alray": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": device_name(device),
        "cores": len(os.sched_getaffinity(0)),
    }
