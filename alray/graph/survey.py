"""What each node of a cluster has: libraries, devices, memory, disk and clock."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import ray
from ray.exceptions import RayError

from alray.graph.cluster import Node, rays_folder, reason_of
from alray.graph.links import on_node

_SURVEY_S = 60.0
_ASKED = 5
LIBRARIES = ("alray", "ray", "torch", "torchvision", "obstore")


@dataclass(frozen=True)
class NodeFacts:
    """A node as a process on it finds it."""

    host: str
    versions: dict[str, str | None]
    """Of Python and of LIBRARIES; on a node with GPUs also of CUDA and NCCL in torch. None where one is missing."""
    cpus: float
    gpus: float
    shared_memory_bytes: int
    disk_bytes: int
    """Left where Ray keeps its session."""
    clock_s: float
    """How much its clock is ahead of this one."""


class Surveyor:
    """Finds the facts of its node."""

    def now_s(self) -> float:
        return time.time()

    def facts(self, gpus: float) -> dict[str, Any]:
        """gpus: number of GPUs that Ray counts on this node."""
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
        }


def survey(nodes: Sequence[Node]) -> list[NodeFacts | str]:
    """The facts of each node, or in one line why it did not tell them."""
    actors = [ray.remote(Surveyor).options(**on_node(node.id)).remote() for node in nodes]
    asked = [actor.facts.remote(node.resources.get("GPU", 0.0)) for actor, node in zip(actors, nodes, strict=True)]
    found: list[NodeFacts | str] = []
    for node, actor, reference in zip(nodes, actors, asked, strict=True):
        try:
            facts = ray.get(reference, timeout=_SURVEY_S)
            ahead_s = median(_ahead_s(actor) for _ in range(_ASKED))
        except RayError as error:
            found.append(reason_of(error))
        else:
            cpus, gpus = (node.resources.get(name, 0.0) for name in ("CPU", "GPU"))
            found.append(NodeFacts(host=node.host, cpus=cpus, gpus=gpus, clock_s=ahead_s, **facts))
        ray.kill(actor)
    return found


def _gpu_libraries() -> dict[str, str | None]:
    """The versions of CUDA and NCCL in this torch."""
    import torch
    import torch.distributed as dist

    return {
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if dist.is_nccl_available() else None,
    }


def _ahead_s(actor: Any) -> float:
    """How much the clock of an actor's node is ahead, up to half of the time that an answer takes."""
    began_s = time.time()
    there_s: float = ray.get(actor.now_s.remote(), timeout=_SURVEY_S)
    return there_s - (began_s + time.time()) / 2
