"""The nodes of the cluster that this process is connected to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from alray.config.sections.resources import ACCELERATORS
from alray.core.errors import PlanError
from alray.core.storage.location import Location

if TYPE_CHECKING:
    from ray.exceptions import RayError

Bundle = dict[str, float]
"""An amount of each of Ray's resources: what a node has, or what a stage requests there."""


@dataclass(frozen=True)
class ClusterNode:
    """A node of the cluster that answers."""

    id: str
    host: str
    address: str
    resources: Bundle


def living_nodes(labels: Mapping[str, str] | None = None) -> list[ClusterNode]:
    """The nodes that are alive and have these labels, in the order of their hosts. Ray takes seconds to miss one."""
    import ray

    found = [
        ClusterNode(node["NodeID"], node["NodeManagerHostname"], node["NodeManagerAddress"], node["Resources"])
        for node in ray.nodes()
        if node["Alive"] and all(node["Labels"].get(key) == value for key, value in (labels or {}).items())
    ]
    return sorted(found, key=lambda node: (node.host, node.id))


def given_gpus() -> list[str]:
    """The accelerators of this node that Ray reserved for this process, by number or name."""
    import ray

    given: dict[str, list[str]] = ray.get_runtime_context().get_accelerator_ids()
    return next(filter(None, (given[name] for name in ACCELERATORS)), [])


def is_slice(gpu: str) -> bool:
    """Whether it is a slice of a GPU (NVIDIA's MIG). Slices have names of their own; NCCL refuses two of one card."""
    return gpu.startswith("MIG-")


def on_node(node: str) -> dict[str, Any]:
    """Return Ray's options for a short task or an actor on this node, in addition to whatever runs there."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def reason_of(error: RayError | str) -> str:
    """The line of a message of Ray that says why: the last one, except where a process took too much memory."""
    from ray.exceptions import OutOfMemoryError

    lines = str(error).strip().splitlines() or ["no message"]
    return lines[0] if isinstance(error, OutOfMemoryError) else lines[-1]


def not_shared(whose: str, host: str, run_dir: Location) -> PlanError:
    """The error for a stage on a node that does not see the run folder."""
    return PlanError(
        f"{whose} is on {host}, which does not see the run folder {run_dir}",
        hint="give an --output on storage that all nodes share, or on object storage, such as s3://bucket/run",
    )
