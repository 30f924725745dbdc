"""The device on which a stage computes, and the settings that make its bits reproducible."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import torch

from alray import __version__
from alray.core import accelerator
from alray.core.environment import environment as variables
from alray.core.errors import PlanError
from alray.core.randomness.generators import put_back
from alray.models.compiled import limits_restored
from alray.runtime.device.out_of_memory import came_from, clear_frames, is_out_of_memory

# Deterministic runs need it on a GPU. cuBLAS's setting is read at the first matrix product of a process, and not again.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# A stage between two others has up to four streams of NCCL, and further ones for sums and copies. With 8 queues, the
# default, two streams may share one: a receive that waits there holds up the send that its neighbour waits for.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

Tf32 = Literal["none", "convolutions", "all"]
"""The float32 operations of a GPU whose inputs are rounded to TF32: `resources.tf32`."""

_OF_COMPILER = "TORCHINDUCTOR_DETERMINISTIC"
_INDUCTOR = "torch._inductor.config"
_NO_ALGORITHM = (
    "does not have a deterministic implementation"  # torch's words; which operations have one, a device says
)
_OF_ONEDNN = (torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv, torch.backends.mkldnn.rnn)  # type: ignore[attr-defined]
"""The float32 operations of oneDNN, torch's library for CPUs."""
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGEST_ON_HEAP = 32 * 2**20
"""Bytes. glibc comes to this by itself in a process that frees large arrays."""


def configure(threads: int, deterministic: bool, device: torch.device, tf32: Tf32 = "convolutions") -> None:
    """Prepare the calling thread, the one that computes, for this device.

    Args:
        deterministic: whether only deterministic algorithms are used. If not, cuDNN takes the fastest ones, which it
            finds by trying them.
        threads: of a processor. They change the bits: a sum over two threads is rounded differently than a sum over
            one. OpenMP keeps this number for each thread, and CUDA the GPU that new streams and events belong to.
        tf32: the operations of a GPU that round their inputs to TF32, which changes the bits. torch's default is
            `convolutions`. A CPU has no TF32.
    """
    _keep_memory()
    if accelerator.is_accelerator(device):
        accelerator.use(device)
    torch.set_float32_matmul_precision("highest")  # also of oneDNN, which else may multiply in bfloat16 on a CPU
    for operations in _OF_ONEDNN:
        operations.fp32_precision = "ieee"
    torch.backends.cudnn.allow_tf32 = tf32 != "none"
    torch.backends.cuda.matmul.allow_tf32 = tf32 == "all"
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = not deterministic
    # `torch.use_deterministic_algorithms` does both, and imports torch's compiler, which takes a second.
    torch.set_deterministic_debug_mode("error" if deterministic else "default")
    _configure_compiler(deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def hint_where_not_deterministic(fault: BaseException) -> str | None:
    """What helps where an operation has no deterministic algorithm on its device; None for any other fault. The code
    that asked for the operation is right."""
    if _NO_ALGORITHM not in str(fault):
        return None
    return (
        "set run.deterministic=false, and runs of this spec may differ; or use another operation, which has a "
        "deterministic algorithm on this device"
    )


@contextmanager
def _precision_restored() -> Iterator[None]:
    """Restore at the end to what torch rounds the inputs of float32 operations.

    torch has two kinds of flags for it, and refuses to read the older ones where a program has set the newer ones.
    """
    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    operations = (cudnn.conv, cudnn.rnn, products, *_OF_ONEDNN)  # type: ignore[attr-defined]
    newer = [each.fp32_precision for each in operations]
    older = None
    with suppress(RuntimeError):
        older = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    try:
        yield
    finally:
        if older is not None:
            torch.set_float32_matmul_precision(older[0])
            cudnn.allow_tf32 = older[1]
        for each, precision in zip(operations, newer, strict=True):
            each.fp32_precision = precision


def _configure_compiler(deterministic: bool) -> None:
    """Have Inductor, the compiler of torch.compile, choose no kernel by measuring if `deterministic`."""
    os.environ[_OF_COMPILER] = "1" if deterministic else "0"  # is read when Inductor is imported
    imported = sys.modules.get(_INDUCTOR)
    if imported is not None:
        imported.deterministic = deterministic  # type: ignore[attr-defined]


@contextmanager
def _compiler_restored() -> Iterator[None]:
    """Have Inductor choose kernels at the end as it does now."""
    imported = sys.modules.get(_INDUCTOR)
    before = os.environ.get(_OF_COMPILER) == "1" if imported is None else imported.deterministic
    with variables(**{_OF_COMPILER: ""}):
        try:
            yield
        finally:
            _configure_compiler(before)


_keeps_memory = False
"""Whether this process keeps freed memory."""


def _keep_memory(keeps: bool = True) -> None:
    """Make glibc keep freed memory, or give it back again. Does nothing if the C library has no `mallopt`.

    Activations are allocated and freed in every mini-batch. Returning their pages to the system and faulting them in
    again took 5 % of a step on two cores.
    """
    global _keeps_memory
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or keeps == _keeps_memory:
        return
    _keeps_memory = keeps
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, 1 << 30 if keeps else _LARGEST_ON_HEAP)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1 if keeps else 2 * _LARGEST_ON_HEAP)


@contextmanager
def configured(
    threads: int,
    deterministic: bool,
    device: torch.device,
    tf32: Tf32 = "convolutions",
    *,
    keeps_memory: bool = False,
) -> Iterator[None]:
    """Call `configure`, and restore all settings and the state of random numbers at the end, those of a compiler that
    is set up inside included. They are of the whole process, so one thread at a time is inside.

    Args:
        keeps_memory: whether torch keeps memory of a GPU that nothing uses at the end. Otherwise it goes back to the
            GPU: a stage of another process may need it.
    """
    with put_back(device), _precision_restored(), _compiler_restored(), limits_restored(), accelerator.using(device):
        threads_before = torch.get_num_threads()
        deterministic_before = torch.get_deterministic_debug_mode()
        benchmark_before = torch.backends.cudnn.benchmark
        fills_before = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        kept_before = _keeps_memory
        failed = True
        try:
            configure(threads, deterministic, device, tf32)
            yield
            failed = False
        except BaseException as error:
            if any(map(is_out_of_memory, came_from(error))):
                clear_frames(error)  # a notebook keeps the error, and with it would stay what took the memory
            raise
        finally:
            torch.set_num_threads(threads_before)
            torch.set_deterministic_debug_mode(deterministic_before)
            _keep_memory(kept_before)
            torch.backends.cudnn.benchmark = benchmark_before
            torch.utils.deterministic.fill_uninitialized_memory = fills_before  # type: ignore[attr-defined]
            if accelerator.is_accelerator(device) and not keeps_memory:
                gc.collect()  # modules and what autograd keeps may refer to each other
                accelerator.free_unused_memory(after_failure=failed)


_given: tuple[str, ...] | None = None
"""The GPUs that Ray reserved for this process; None: nobody reserves GPUs for it, as for a command."""


def keep_to(given: Sequence[str]) -> None:
    """Have this process compute on the first of these GPUs, and on a CPU if there are none.

    It may see others, which are reserved for other processes: Ray hides none from a process that asks for none, and
    none where the user said so, or where nothing hides accelerators of this kind.

    Args:
        given: the GPUs that Ray reserved for this process.
    """
    global _given
    _given = tuple(given)


def shares_gpu() -> bool:
    """Whether Ray reserved GPUs for this process, of which others may have the rest."""
    return bool(_given)


def pick(device: str, *, gpu: int | None = None) -> torch.device:
    """Return the device of this kind: `cpu`, torch's name of an accelerator, or `auto` for the one that torch offers.

    Args:
        gpu: its number among those that this process sees. None: the one reserved for this process, or the first one
            where nobody reserves GPUs for it.

    Raises:
        PlanError: if this process sees no such accelerator, or not the one reserved for it.
    """
    if device == "cpu":
        return torch.device("cpu")
    if accelerator.available(device) is None:
        other = accelerator.available()
        raise PlanError(
            "this machine has no GPU that torch can use"
            if other is None
            else f"torch offers `{other.type}` on this machine, not `{device}`",
            key="resources.device",
            hint="set resources.device=cpu, or run where there are GPUs; `alray doctor` says more"
            if other is None
            else f"set resources.device={other.type}, or auto",
        )
    if gpu is None:
        gpu = 0 if _given is None else number_of_given(_given, device)
    return torch.device(accelerator.kind(device), gpu)


def require_known(device: str) -> None:
    """Raise PlanError if torch knows no such kind of device, here or elsewhere."""
    try:
        torch.device(accelerator.kind(device))
    except RuntimeError as error:
        raise PlanError(
            f"torch knows no device `{device}`",
            key="resources.device",
            hint=f"write cpu or {accelerator.kind()}, or auto for the accelerator that torch offers",
        ) from error


def at_hand(device: str) -> torch.device:
    """Return the device of this kind if this process has one, else a CPU.

    A driver whose stages are on other nodes measures on it: the head node of a cluster may have no GPU, and none is
    reserved for the driver of a trial.
    """
    has_none = _given == () or accelerator.available(device) is None
    return torch.device("cpu") if device == "cpu" or has_none else pick(device)


def number_of_given(given: Sequence[str], device: str) -> int:
    """Return the number of a given GPU among those that this process sees.

    The processes of a node may see GPUs that were given to others, and the numbers of GPUs begin again on each node, so
    neither the number of the stage nor 0 is right in general. Where the environment hides none, a process sees all GPUs
    of its machine.

    Args:
        given: the GPUs that Ray reserved for this process, of which a stage takes the first.
        device: their kind, as for `pick`.

    Raises:
        PlanError: if the process does not see the GPU.
    """
    variable = accelerator.shown_by(device)
    visible = None if variable is None else os.environ.get(variable)
    seen = [str(number) for number in range(accelerator.count())] if visible is None else visible.split(",")
    if not given or given[0] not in seen:
        hint = f"start Ray's nodes with the {variable} that their GPUs have"
        if variable is None:
            hint = "start Ray's nodes with --num-gpus as many as they have"
        elif accelerator.kind(device) == "xpu":
            hint += ", and install dpctl there: without it Ray counts from 0, whatever that variable says"
        raise PlanError(
            f"Ray reserved the GPUs [{', '.join(given)}] for this stage, whose process sees [{', '.join(seen)}]",
            key="resources.per_stage",
            hint=hint,
        )
    return seen.index(given[0])


def device_name(device: torch.device) -> str:
    """Return the model of the GPU, or of the processor with its instruction set.

    Two runs give the same bits only on devices of the same name.
    """
    if accelerator.is_accelerator(device):
        return accelerator.name(device)
    return f"{_processor()} ({torch.backends.cpu.get_cpu_capability()})"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def environment(device: torch.device) -> dict[str, Any]:
    """Return versions and hardware. A resume compares them with those of its machine; a run records them."""
    return {
        "alray": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "device": device_name(device),
        "cores": len(os.sched_getaffinity(0)),
    }
