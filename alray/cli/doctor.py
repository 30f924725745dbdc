"""`alray doctor`: what this machine, or a cluster, has for alray."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from alray.cli.options import Json
from alray.cli.terminal import terminal
from alray.core.counting import counted
from alray.report.text import size


@dataclass(frozen=True)
class CheckResult:
    """What was found. A fault has a `hint`: what the user can do about it."""

    name: str
    state: Literal["ok", "fault"]
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        told = self.message if self.state == "ok" else f"{self.state}: {self.message}"
        return told if self.hint is None else f"{told}; {self.hint}"


def doctor(
    *,
    address: Annotated[
        str | None, typer.Option(metavar="A", help="Ask the Ray cluster at this address too for its nodes.")
    ] = None,
    json: Json = False,
) -> None:
    """Show versions, processors, GPUs, shared memory and disk of this machine.

    The exit code is 1 if torch cannot use the GPUs, or the disk cannot be written.
    """
    with terminal(as_json=json) as streams:
        found = [*results(address)]
        ok = all(result.state != "fault" for result in found)
        if json:
            streams.answer({"ok": ok, "checks": [asdict(result) for result in found]})
        else:
            streams.fields([(result.name, str(result)) for result in found])
    if not ok:
        raise typer.Exit(1)


def results(address: str | None) -> Iterator[CheckResult]:
    """Run every check.

    Args:
        address: of a Ray cluster; None: this machine alone. RequestError is raised where none answers.
    """
    yield CheckResult("python", "ok", platform.python_version())
    for name in ("torch", "torchvision", "ray"):
        yield CheckResult(name, "ok", metadata.version(name))
    yield CheckResult("processors", "ok", f"{len(os.sched_getaffinity(0))}")
    yield gpus()
    yield CheckResult("shared memory", "ok", f"/dev/shm has {size(shutil.disk_usage('/dev/shm').total)}")
    yield disk(Path("runs"))
    if address is not None:
        yield cluster(address)


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


def disk(folder: Path) -> CheckResult:
    """Whether run folders can be written to `folder`, where they are written by default."""
    holder = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    if not os.access(holder, os.W_OK):
        return CheckResult("disk", "fault", f"{holder} cannot be written", "change to another folder, or use --output")
    return CheckResult("disk", "ok", f"{holder} can be written; {size(shutil.disk_usage(holder).free)} left")


def cluster(address: str) -> CheckResult:
    """The nodes of the cluster at this address, with what each one has. Raises RequestError if none answers."""
    from alray.runtime.cluster.connect import connect
    from alray.runtime.cluster.nodes import living_nodes

    with connect(address, []):
        nodes = living_nodes()
    devices = [", ".join(f"{node.resources.get(name, 0):g} {name}" for name in ("CPU", "GPU")) for node in nodes]
    each = ", ".join(f"{node.host} ({has})" for node, has in zip(nodes, devices, strict=True))
    return CheckResult("cluster", "ok", f"{counted(len(nodes), 'node')}: {each}")
