"""The checks of `alray doctor`: what a machine needs to run alray."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from alray.cli.check_result import CheckResult
from alray.cli.node_checks import authentication, clock, ports, rays_disk
from alray.config.sections.section import listed
from alray.core.compat import PRIVATE, lacking, required
from alray.core.environment import environment
from alray.report.text import size
from alray.runtime.device.machine_memory import machine_memory_bytes
from alray.runtime.local_ray.requirements import RAYS_SHARE

_OLDEST_PYTHON = (3, 11)
_SHARED = Path("/dev/shm")
_LEAST_FREE_BYTES = 1e9
_GLOO_TIMEOUT_S = 5.0


def findings() -> Iterator[CheckResult]:
    """Run every check. A check that needs torch is left out if torch is not installed."""
    yield python()
    torch = library("torch")
    yield torch
    yield library("ray")
    vision = library("torchvision")
    if torch.state != "fault" and vision.state != "fault":
        vision = torchvision_fits(vision)
    yield vision
    if torch.state != "fault":
        yield private_parts(besides=("torchvision",) if vision.state == "fault" else ())
    yield processors()
    yield memory()
    yield shared_memory()
    if torch.state != "fault":
        yield gpus()
        yield nccl()
        yield network()
    yield ports()
    yield clock()
    yield run_folder(Path("runs"))
    yield rays_disk()
    yield authentication()
    yield leftovers()


def python() -> CheckResult:
    """The version of Python."""
    if sys.version_info < _OLDEST_PYTHON:
        wanted = ".".join(map(str, _OLDEST_PYTHON))
        return CheckResult("python", "fault", platform.python_version(), f"install Python {wanted} or newer")
    return CheckResult("python", "ok", platform.python_version())


def library(name: str) -> CheckResult:
    """The version of a library that alray requires, found without importing it."""
    oldest = required(name).rpartition(">=")[2]
    hint = f"install {name} {oldest} or newer"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return CheckResult(name, "fault", "not installed", hint)
    if _release(version) < _release(oldest):
        return CheckResult(name, "fault", f"{version} is older than {oldest}", hint)
    return CheckResult(name, "ok", version)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def torchvision_fits(found: CheckResult) -> CheckResult:
    """Whether the operators of torchvision work with this torch. Importing or calling them fails if they do not."""
    import torch

    try:
        from torchvision.ops import nms

        nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([1.0]), 0.5)
    except (ImportError, RuntimeError, AttributeError) as error:
        # A symbol, an operator or a name that this torch does not have.
        return CheckResult(
            "torchvision",
            "fault",
            f"{found.message} does not fit torch {torch.__version__}: {str(error).splitlines()[0]}",
            "install torch and torchvision together, from the same index",
        )
    return CheckResult("torchvision", "ok", f"{found.message}, fits torch {torch.__version__}")


def private_parts(besides: Collection[str] = ()) -> CheckResult:
    """Whether the installed libraries have the private parts that alray uses (`alray.core.compat`).

    Args:
        besides: libraries that another check finds at fault.
    """
    found = list(lacking(besides))
    if not found:
        return CheckResult("private parts", "ok", f"all {len(PRIVATE)} that alray uses are there")
    what = "; ".join(f"{message} ({private.why})" for private, message in found)
    within = listed(list(dict.fromkeys(required(private.library) for private, _ in found)), "and")
    return CheckResult("private parts", "fault", what, f"install other versions, within {within}")


def processors() -> CheckResult:
    """The processors this process may use."""
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        return CheckResult(
            "processors", "warning", "1: the stages take turns on it", "use a machine with one processor for each stage"
        )
    return CheckResult("processors", "ok", f"{cores}")


def memory() -> CheckResult:
    """The memory this process may use."""
    return CheckResult("memory", "ok", size(machine_memory_bytes()))


def shared_memory() -> CheckResult:
    """The shared memory of Ray's object store. alray sends no tensors through it, so a small one only slows Ray."""
    if not _SHARED.is_dir():
        return CheckResult("shared memory", "warning", f"there is no {_SHARED}, so Ray's object store uses the disk")
    total = shutil.disk_usage(_SHARED).total
    wanted = RAYS_SHARE * machine_memory_bytes()
    if total < wanted:
        return CheckResult(
            "shared memory",
            "warning",
            f"{_SHARED} has {size(total)}, but Ray's object store needs {size(wanted)}; it will spill to the disk",
            f"start the container with --shm-size={wanted / 1e9:.1f}gb; alray's tensors do not use this memory",
        )
    return CheckResult("shared memory", "ok", f"{_SHARED} has {size(total)}")


def gpus() -> CheckResult:
    """The GPUs that torch can use."""
    import torch

    from alray.core import accelerator

    if (first := accelerator.available()) is not None:
        names = [accelerator.name(torch.device(first.type, index)) for index in range(accelerator.count())]
        return CheckResult("gpus", "ok", ", ".join(names))
    # NVIDIA's library still counts the GPUs whose driver is too old for this torch.
    if seen := accelerator.count():
        return CheckResult(
            "gpus",
            "fault",
            f"{seen} there, but CUDA {torch.version.cuda} of torch {torch.__version__} cannot use any",
            "install a newer NVIDIA driver, or a torch built for an older CUDA; until then set resources.device=cpu",
        )
    return CheckResult("gpus", "ok", "none: the stages compute on processors")


def nccl() -> CheckResult:
    """NCCL, through which GPUs exchange tensors."""
    from alray.core import accelerator

    if accelerator.available("cuda") is None:
        return CheckResult("nccl", "ok", "not needed: there is no GPU of NVIDIA or AMD")
    if (version := accelerator.nccl_version()) is None:
        return CheckResult(
            "nccl", "fault", "this torch was built without it", "install torch from PyPI, whose builds for CUDA have it"
        )
    return CheckResult("nccl", "ok", version)


def network() -> CheckResult:
    """Whether two stages on this machine can open a channel: two gloo ranks exchange tensors over loopback."""
    import torch
    import torch.distributed as dist

    store = dist.HashStore()

    def rank(number: int) -> torch.Tensor:
        group: Any = dist.ProcessGroupGloo(store, number, 2, timedelta(seconds=_GLOO_TIMEOUT_S))
        tensor = torch.full((1,), 1.0 - number)
        (group.recv if number else group.send)([tensor], 1 - number, 0).wait()
        return tensor

    try:
        with environment(GLOO_SOCKET_IFNAME="lo"), ThreadPoolExecutor(max_workers=2) as threads:
            sent, received = threads.map(rank, (0, 1))
    except RuntimeError as error:
        return CheckResult(
            "network",
            "fault",
            f"two gloo ranks cannot connect over the loopback interface: {str(error).splitlines()[0]}",
            "bring up the interface `lo` and allow connections to 127.0.0.1; until then run with --inline",
        )
    if not torch.equal(sent, received):
        return CheckResult("network", "fault", "gloo changed a tensor in transit", "reinstall torch")
    return CheckResult("network", "ok", "two gloo ranks connected over the loopback interface")


def run_folder(folder: Path) -> CheckResult:
    """Whether run folders can be written to `folder`, where they are written by default."""
    holder = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=holder, prefix=".alray-"):
            pass
    except OSError as error:
        return CheckResult(
            "run folder",
            "fault",
            f"{holder} cannot be written: {error.strerror}",
            "change to another folder, or use --output",
        )
    free = shutil.disk_usage(holder).free
    if free < _LEAST_FREE_BYTES:
        return CheckResult(
            "run folder", "warning", f"{holder} has only {size(free)} left", "free some space, or use --output"
        )
    return CheckResult("run folder", "ok", f"{holder} can be written; {size(free)} left")


def leftovers() -> CheckResult:
    """Processes of this user that outlive their Ray.

    After a driver or a part of Ray was killed, Ray's agents and idle workers notice it only after some seconds. Each is
    a child of its raylet while that lives.
    """
    left = []
    for process in psutil.process_iter(["pid", "uids", "cmdline"]):
        name = (process.info["cmdline"] or [""])[0].partition(" ")[0]  # Ray pads its titles with spaces
        if name.startswith("ray::") and process.info["uids"].real == os.getuid():
            with suppress(psutil.NoSuchProcess):  # it has just ended
                parent = process.parent()
                if parent is None or parent.name() != "raylet":
                    left.append((process.info["pid"], name))
    if not left:
        return CheckResult("leftovers", "ok", "no process of a Ray that has ended")
    named = ", ".join(f"{pid} ({name})" for pid, name in sorted(left))
    return CheckResult(
        "leftovers",
        "warning",
        f"processes of a Ray that has ended: {named}",
        f"they end about a minute after it; to end them now: kill {' '.join(str(pid) for pid, _ in sorted(left))}",
    )
