"""The facts about each node of a cluster: libraries, devices, memory, disk and clock."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from ipaddress import ip_address
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import ray
from ray.exceptions import RayError

from alray.core.compat import is_token_auth_enabled
from alray.runtime.cluster.nodes import ClusterNode, on_node, reason_of
from alray.runtime.local_ray.private import rays_folder

_SURVEY_S = 60.0
_CLOCK_READINGS = 5
LIBRARIES = ("alray", "ray", "torch", "torchvision", "obstore")


@dataclass(frozen=True)
class NodeFacts:
    """A node as a process on it finds it."""

    host: str
    versions: dict[str, str | None]
    """The versions of Python and of LIBRARIES; with GPUs also those of what torch was built for. None: missing."""
    cpus: float
    gpus: float
    shared_memory_bytes: int
    disk_bytes: int
    """Left where Ray keeps its session."""
    open_ports: dict[str, tuple[int, ...]]
    """The ports on which programs of Ray listen for other hosts, by program."""
    asks_for_token: bool
    clock_s: float
    """How much its clock is ahead of this one."""


class Surveyor:
    """Finds the facts of its node."""

    def now_s(self) -> float:
        return time.time()

    def facts(self, gpus: float) -> dict[str, Any]:
        """
        Args:
            gpus: number of GPUs that Ray counts on this node.
        """
        versions: dict[str, str | None] = {"python": platform.python_version()}
        for name in LIBRARIES:
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = None
        if gpus and versions["torch"] is not None:
            versions |= _gpu_libraries()
        shared = Path("/dev/shm")
        return {
            "versions": versions,
            "shared_memory_bytes": shutil.disk_usage(shared).total if shared.is_dir() else 0,
            "disk_bytes": shutil.disk_usage(rays_folder()[1]).free,
            "open_ports": _open_ports(),
            "asks_for_token": is_token_auth_enabled(),
        }


def survey(nodes: Sequence[ClusterNode]) -> list[NodeFacts | str]:
    """Return the facts of each node, or one line that says why it reported none."""
    actors = [ray.remote(Surveyor).options(**on_node(node.id)).remote() for node in nodes]
    references = [actor.facts.remote(node.resources.get("GPU", 0.0)) for actor, node in zip(actors, nodes, strict=True)]
    found: list[NodeFacts | str] = []
    for node, actor, reference in zip(nodes, actors, references, strict=True):
        try:
            facts = ray.get(reference, timeout=_SURVEY_S)
            ahead_s = median(_ahead_s(actor) for _ in range(_CLOCK_READINGS))
        except RayError as error:
            found.append(reason_of(error))
        else:
            cpus, gpus = (node.resources.get(name, 0.0) for name in ("CPU", "GPU"))
            found.append(NodeFacts(host=node.host, cpus=cpus, gpus=gpus, clock_s=ahead_s, **facts))
        ray.kill(actor)
    return found


def _open_ports() -> dict[str, tuple[int, ...]]:
    """The ports on which programs of Ray listen here for other hosts, by program. All workers are one program."""
    found: dict[str, set[int]] = {}
    for each in psutil.net_connections("tcp"):
        if each.status != psutil.CONN_LISTEN or each.pid is None or not each.laddr:
            continue
        if not _is_loopback(each.laddr.ip):
            with suppress(psutil.NoSuchProcess):  # it has just ended
                program = _program_of_ray(psutil.Process(each.pid).cmdline())
                if program is not None:
                    found.setdefault(program, set()).add(each.laddr.port)
    return {program: tuple(sorted(ports)) for program, ports in sorted(found.items())}


def _is_loopback(address: str) -> bool:
    return ip_address(address.removeprefix("::ffff:")).is_loopback


def _program_of_ray(arguments: Sequence[str]) -> str | None:
    """Return the part of Ray that a process is, found from its arguments. None for other programs."""
    title = arguments[0].partition(" ")[0] if arguments else ""
    if title.startswith("ray::"):
        return title.removeprefix("ray::") if title.endswith("Agent") else "workers"
    of_ray = [Path(each) for each in arguments[:3] if "/ray/" in each]
    return of_ray[0].stem if of_ray else None


def _gpu_libraries() -> dict[str, str | None]:
    """The versions of what this torch was built for: CUDA or ROCm, and NCCL; or XPU. A torch for no accelerator has
    none of CUDA and NCCL."""
    import torch

    from alray.core.accelerator import has_nccl, kind, nccl_version

    if not has_nccl("auto"):
        return {"xpu": torch.version.xpu} if kind() == "xpu" else {}
    platform_ = {"rocm": torch.version.hip} if torch.version.hip else {"cuda": torch.version.cuda}
    return {**platform_, "nccl": nccl_version()}


def _ahead_s(actor: Any) -> float:
    """How much the clock of an actor's node is ahead, up to half of the time that an answer takes."""
    began_s = time.time()
    there_s: float = ray.get(actor.now_s.remote(), timeout=_SURVEY_S)
    return there_s - (began_s + time.time()) / 2
