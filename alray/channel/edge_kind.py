"""How the tensors of an edge travel. Whoever opens an edge asks here, edge by edge."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EdgeKind(Enum):
    """How an edge between two processes carries tensors."""

    MEMORY = "memory"
    """Memory that both processes share, on one node (`alray.channel.shared_memory`)."""
    GLOO = "gloo"
    """Sockets between nodes, from host memory to host memory (`alray.channel.point_to_point`)."""


@dataclass(frozen=True)
class Seat:
    """Where a stage computes."""

    node: str
    gpu: str | None = None
    """The GPU on this node, by its number or name; None: a processor."""


def edge_kind(one: Seat, other: Seat) -> EdgeKind:
    """The kind of the edges between two stages, the same in both directions."""
    return EdgeKind.MEMORY if one.node == other.node else EdgeKind.GLOO
