"""`alray doctor`: what this machine, or a cluster, has for alray."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from alray.api.console.layout import GREEN, RED, YELLOW, Page
from alray.cli.options import Json
from alray.cli.terminal import terminal
from alray.core.counting import counted
from alray.report.text import size

_STYLES = {"ok": GREEN, "warning": YELLOW, "fault": RED}
_WIDTH = max(map(len, _STYLES))
_OLDEST_PYTHON = (3, 11)
_SHARED = Path("/dev/shm")
_LEAST_FREE_BYTES = 1e9


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. A warning or a fault may have a `hint`: what the user can do about it."""

    name: str
    state: Literal["ok", "warning", "fault"]
    message: str
    hint: str | None = None


def doctor(
    *,
    address: Annotated[
        str | None,
        typer.Option(metavar="A", help="Ask the Ray cluster at this address too for its nodes.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Show versions, processors, GPUs, shared memory and disk of this machine, and whether they are enough for alray.

    The exit code is 1 if a check finds a fault.
    """
    with terminal(as_json=json) as streams:
        found: list[CheckResult] = []
        for result in results(address):
            found.append(result)
            if not json:
                streams.put(_text_of(result, streams.page))
        ok = all(result.state != "fault" for result in found)
        if json:
            streams.answer({"ok": ok, "checks": [asdict(result) for result in found]})
        else:
            streams.say(_counted(found))
    if not ok:
        raise typer.Exit(1)


def _text_of(result: CheckResult, page: Page) -> str:
    """Return the text of a check's result, with its hint below it."""
    margin = " " * (_WIDTH + 2)
    text = page.sentence(
        f"{result.name}: {result.message}", first=f"{result.state:{_WIDTH}}  ", hang=margin
    ).removeprefix(result.state)
    lines = [page.styled(result.state, _STYLES[result.state]) + text]
    if result.hint is not None:
        lines.append(page.sentence(f"help: {result.hint}", first=f"{margin}= ", hang=f"{margin}  "))
    return "\n".join(lines)


def _counted(found: Sequence[CheckResult]) -> str:
    counts = {state: sum(result.state == state for result in found) for state in ("fault", "warning")}
    wrong = ", ".join(counted(count, state) for state, count in counts.items() if count)
    return f"{counted(len(found), 'check')}: {wrong or 'all is well'}"


def results(address: str | None) -> Iterator[CheckResult]:
    """Run every check; that of GPUs only where torch is installed.

    Args:
        address: of a Ray cluster; None: this machine alone. RequestError is raised where none answers.
    """
    yield python()
    torch = library("torch")
    yield torch
    yield library("torchvision")
    yield library("ray")
    yield processors()
    if torch.state != "fault":
        yield gpus()
    yield shared_memory()
    yield disk(Path("runs"))
    if address is not None:
        yield cluster(address)


def python() -> CheckResult:
    """The version of Python."""
    if sys.version_info < _OLDEST_PYTHON:
        wanted = ".".join(map(str, _OLDEST_PYTHON))
        return CheckResult("python", "fault", platform.python_version(), f"install Python {wanted} or newer")
    return CheckResult("python", "ok", platform.python_version())


def library(name: str) -> CheckResult:
    """The version of a library that alray requires, found without importing it."""
    from alray.core.compat import required

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


def processors() -> CheckResult:
    """The processors this process may use."""
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        return CheckResult(
            "processors", "warning", "1: the stages take turns on it", "use a machine with one processor for each stage"
        )
    return CheckResult("processors", "ok", f"{cores}")


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


def shared_memory() -> CheckResult:
    """The shared memory of Ray's object store. alray sends no tensors through it, so a small one only slows Ray."""
    from alray.runtime.device.machine_memory import machine_memory_bytes
    from alray.runtime.local_ray.requirements import RAYS_SHARE

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


def disk(folder: Path) -> CheckResult:
    """Whether run folders can be written to `folder`, where they are written by default."""
    holder = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=holder, prefix=".alray-"):
            pass
    except OSError as error:
        return CheckResult(
            "disk",
            "fault",
            f"{holder} cannot be written: {error.strerror}",
            "change to another folder, or use --output",
        )
    free = shutil.disk_usage(holder).free
    if free < _LEAST_FREE_BYTES:
        return CheckResult(
            "disk", "warning", f"{holder} has only {size(free)} left", "free some space, or use --output"
        )
    return CheckResult("disk", "ok", f"{holder} can be written; {size(free)} left")


def cluster(address: str) -> CheckResult:
    """The nodes of the cluster at this address, with what each one has. Raises RequestError if none answers."""
    from alray.runtime.cluster.connect import connect
    from alray.runtime.cluster.nodes import living_nodes

    with connect(address, []):
        nodes = living_nodes()
    devices = [", ".join(f"{node.resources.get(name, 0):g} {name}" for name in ("CPU", "GPU")) for node in nodes]
    each = ", ".join(f"{node.host} ({has})" for node, has in zip(nodes, devices, strict=True))
    return CheckResult("cluster", "ok", f"{counted(len(nodes), 'node')}: {each}")
