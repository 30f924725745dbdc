"""Whether the nodes of a cluster have room for what stages request, and waiting until they have."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from alray.core.errors import PlanError, StageError
from alray.runtime.cluster.nodes import Bundle, ClusterNode, living_nodes
from alray.runtime.local_ray.head import end_leading_processes

_UNTOLD_S = 5.0
"""Seconds without room before a run prints a note: what ran before it may still be ending."""
_OWN_ROOM_S = 120.0
"""Seconds that a Ray that alray started may take to free what ended, and to start processes."""


def require_room(
    bundles: Sequence[Bundle], nodes: Sequence[dict[str, float]], labels: Mapping[str, str] | None = None
) -> None:
    """Raise PlanError if the nodes could not hold all bundles even if they were empty. A bundle lies on one node.

    Bundles are placed largest first, each on the first node with room. For equal bundles this is exact.
    """
    free = [dict(node) for node in nodes]
    for number, bundle in enumerate(sorted(bundles, key=lambda bundle: sorted(bundle.items()), reverse=True)):
        for node in free:
            if _fits(bundle, node):
                for name, amount in bundle.items():
                    node[name] = node.get(name, 0.0) - amount
                break
        else:
            requested = " and ".join(f"{amount:g} {name}" for name, amount in bundle.items())
            totals = ", ".join(f"{sum(node.get(name, 0.0) for node in nodes):g} {name}" for name in bundle)
            raise PlanError(
                f"{len(bundles)} stages of {requested} each can never be placed: the cluster has {totals} "
                f"on {len(nodes)} node{'s' if len(nodes) != 1 else ''}{_with(labels)}, room for {number}",
                key="resources.per_stage",
                hint="lower pipeline.stages or resources.per_stage, or attach to a larger cluster",
            )


def _fits(bundle: Bundle, free: Bundle) -> bool:
    return all(free.get(name, 0.0) >= amount for name, amount in bundle.items())


def _with(labels: Mapping[str, str] | None) -> str:
    return f" labelled {', '.join(f'{key}={value}' for key, value in labels.items())}" if labels else ""


def has_room(bundles: Sequence[Bundle], labels: Mapping[str, str] | None = None) -> bool:
    """Whether the nodes that are alive now could hold all bundles if they were empty."""
    try:
        require_room(bundles, [node.resources for node in living_nodes(labels)], labels)
    except PlanError:
        return False
    return True


def holding_nodes(bundles: Sequence[Bundle], labels: Mapping[str, str] | None = None) -> list[ClusterNode]:
    """The nodes with these labels that could hold one of the bundles if they were empty."""
    return [node for node in living_nodes(labels) if any(_fits(bundle, node.resources) for bundle in bundles)]


def wait_for_room(
    look: Callable[[], bool],
    bundles: Sequence[Bundle],
    labels: Mapping[str, str] | None,
    note: Callable[[str], None],
    *,
    whose: str,
) -> None:
    """Wait until the cluster has room for the bundles, as long as others use it.

    Args:
        look: takes a moment and returns whether there is room.
        note: is called once with a line for the user if that takes longer.
        whose: what the bundles are for, a plural for messages.

    Raises:
        StageError: if nodes were lost and the rest can never hold the bundles, or if a Ray that alray started, which
            nobody else uses, has no room for long: it is then ended, so that the run starts another one.
    """
    tell_s, end_s = time.monotonic() + _UNTOLD_S, time.monotonic() + _OWN_ROOM_S
    while not look():
        if time.monotonic() > end_s and end_leading_processes():
            raise StageError(f"Ray on this machine has no room for {len(bundles)} {whose}, and nobody else uses it")
        if not has_room(bundles, labels):
            raise StageError(f"the cluster has lost nodes: {len(bundles)} {whose} have no room on it")
        if time.monotonic() > tell_s:
            note(f"others use the cluster: waiting for room for {len(bundles)} {whose}")
            tell_s = math.inf
