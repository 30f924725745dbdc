"""How tensors travel between processes. Whoever opens an edge or a group asks here, edge by edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class EdgeKind(Enum):
    """How an edge between two processes carries tensors, and the sums of a group of them."""

    MEMORY = "memory"
    """Memory that both processes share, on one node (`alray.runtime.channel.shared_memory`)."""
    GLOO = "gloo"
    """Sockets between nodes, from host memory to host memory (`alray.runtime.channel.point_to_point`)."""
    NCCL = "nccl"
    """From one GPU to another, on one node or between nodes (`alray.runtime.channel.nccl`)."""


@dataclass(frozen=True)
class DeviceLocation:
    """The node of a stage, and the GPU that it computes on and that NCCL knows."""

    node: str
    gpu: str | None = None
    """The GPU on this node, by its number or name; None: a processor, or an accelerator without NCCL."""


def edge_kind(one: DeviceLocation, other: DeviceLocation) -> EdgeKind:
    """The kind of the edges between two stages, the same in both directions.

    NCCL refuses two processes on one GPU, so these go through the memory of their node.
    """
    if one.gpu is not None and other.gpu is not None and one != other:
        return EdgeKind.NCCL
    return host_kind(one, other)


def host_kind(one: DeviceLocation, other: DeviceLocation) -> EdgeKind:
    """The kind of an edge between two stages that carries what is in host memory."""
    return EdgeKind.MEMORY if one.node == other.node else EdgeKind.GLOO


def sum_kind(locations: Sequence[DeviceLocation], all_reduce: str) -> EdgeKind:
    """How the replicas of a stage sum: over NCCL if each has its own GPU, else over gloo.

    Args:
        all_reduce: its name. Only `backend` is done by the group itself; the others are written for messages in host
            memory.
    """
    alone = len(set(locations)) == len(locations) and all(location.gpu is not None for location in locations)
    return EdgeKind.NCCL if alone and all_reduce == "backend" else EdgeKind.GLOO
