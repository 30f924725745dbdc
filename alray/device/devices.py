"""The device a stage computes on, and what makes its bits reproducible."""

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
from alray.errors import PlanError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def settle(threads: int, deterministic: bool) -> None:
    """Set the calling thread's number of threads and the process's determinism.

    The thread count is part of the bits: a sum over two threads is rounded otherwise than over one. OpenMP keeps it per
    calling thread, so the thread that computes must call this.
    """
    _keep_memory()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(deterministic or torch.cuda.is_available())
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _keep_memory() -> None:
    """Have glibc keep what is freed: activations come and go with every mini-batch, and giving their pages back to the
    system and faulting them in again took 5 % of a step on two cores. A no-op where the C library has no `mallopt`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for parameter, value in ((_M_ARENA_MAX, 1), (_M_MMAP_THRESHOLD, 1 << 30), (_M_TRIM_THRESHOLD, 2**31 - 1)):
        mallopt(parameter, value)


@contextmanager
def settled(threads: int, deterministic: bool, device: torch.device) -> Iterator[None]:
    """`settle` for a while: threads, determinism and random numbers are as before afterwards."""
    threads_before = torch.get_num_threads()
    deterministic_before = torch.are_deterministic_algorithms_enabled()
    warns_before = torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark_before = torch.backends.cudnn.benchmark
    fills_before = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            settle(threads, deterministic)
            yield
        finally:
            torch.set_num_threads(threads_before)
            torch.use_deterministic_algorithms(deterministic_before, warn_only=warns_before)
            torch.backends.cudnn.benchmark = benchmark_before
            torch.utils.deterministic.fill_uninitialized_memory = fills_before  # type: ignore[attr-defined]


def pick(device: str, *, local_index: int = 0) -> torch.device:
    """The device of this kind, `cpu` or `cuda`. Raises PlanError where a GPU is asked for and there is none."""
    available = torch.cuda.device_count()
    if device == "cuda" and available == 0:
        raise PlanError(
            "this machine has no GPU that torch can use",
            key="resources.device",
            mend="set resources.device=cpu, or run where there are GPUs",
        )
    return torch.device("cpu") if device == "cpu" else torch.device("cuda", local_index % available)


def device_name(device: torch.device) -> str:
    """GPU model, or the processor's model with its instruction set: weights are bit-equal only on the same one."""
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
    """What a resume elsewhere is compared with, and a reader wants to know."""
    return {
        "alray": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": device_name(device),
        "cores": len(os.sched_getaffinity(0)),
    }
