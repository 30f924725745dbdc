"""Whether the nodes of a cluster have room for what stages request, and waiting until they have."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from alray.config.sections.resources import ACCELERATORS
from alray.core.counting import counted
from alray.core.errors import PlanError, StageError
from alray.runtime.cluster.nodes import Bundle, ClusterNode, living_nodes
from alray.runtime.local_ray.head import end_leading_processes

_UNTOLD_S = 5.0
"""Seconds without room before a run prints a note: what ran before it may still be ending."""
_OWN_ROOM_S = 120.0
"""Seconds that a Ray that alray started may take to free what ended, and to start processes."""
_ROUNDING = 1e-6


def require_room(bundles: Sequence[Bundle], nodes: Sequence[Bundle], labels: Mapping[str, str] | None = None) -> None:
    """Raise PlanError if the nodes could not hold all bundles even if they were empty. A bundle lies on one node.

    Where stages request different things, none is raised for what only the way to place them leaves no room for.
    """
    kinds = Counter(tuple(bundle.items()) for bundle in bundles)
    alone = {kind: sum(_held(dict(kind), node) for node in nodes) for kind in kinds}
    names = dict.fromkeys(name for bundle in bundles for name in bundle)
    wanted = {name: sum(bundle.get(name, 0.0) for bundle in bundles) for name in names}
    there = {name: sum(node.get(name, 0.0) for node in nodes) for name in names}
    enough = all(round(there[name] - wanted[name], 4) >= 0 for name in names)
    if enough and all(alone[kind] >= count for kind, count in kinds.items()):
        return
    described = [(count, " and ".join(f"{amount:g} {name}" for name, amount in kind)) for kind, count in kinds.items()]
    requested = f"({', '.join(f'{count} of {each}' for count, each in described)})"
    room = ""
    if len(kinds) == 1:
        requested, room = f"of {described[0][1]} each", f", room for {next(iter(alone.values()))}"
    totals = ", ".join(f"{amount:g} {name}" for name, amount in there.items())
    with_labels = f" labelled {', '.join(f'{key}={value}' for key, value in labels.items())}" if labels else ""
    raise PlanError(
        f"{counted(len(bundles), 'stage')} {requested} can never be placed: the cluster has {totals} "
        f"on {counted(len(nodes), 'node')}{with_labels}{room}",
        key="resources.per_stage",
        hint="lower pipeline.stages or resources.per_stage, or attach to a larger cluster",
    )


def _held(bundle: Bundle, node: Bundle) -> float:
    """How many such bundles an empty node holds. A share of a GPU lies on one GPU."""
    held = math.inf
    for name, amount in bundle.items():
        there = node.get(name, 0.0)
        if name in ACCELERATORS and 0 < amount < 1:
            held = min(held, int(there) * int(1 / amount + _ROUNDING))
        elif amount:
            held = min(held, int(there / amount + _ROUNDING))
    return held


def has_room(bundles: Sequence[Bundle], labels: Mapping[str, str] | None = None) -> bool:
    """Whether the nodes that are alive now could hold all bundles if they were empty."""
    try:
        require_room(bundles, [node.resources for node in living_nodes(labels)], labels)
    except PlanError:
        return False
    return True


def holding_nodes(bundles: Sequence[Bundle], labels: Mapping[str, str] | None = None) -> list[ClusterNode]:
    """The nodes with these labels that could hold one of the bundles if they were empty."""
    return [node for node in living_nodes(labels) if any(_held(bundle, node.resources) for bundle in bundles)]


def is_idle(bundles: Sequence[Bundle]) -> bool:
    """Whether nobody uses what these bundles request."""
    import ray

    there, free = ray.cluster_resources(), ray.available_resources()
    return all(free.get(name, 0.0) == there.get(name, 0.0) for bundle in bundles for name in bundle)


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
        StageError: if nodes were lost and the rest can never hold the bundles; or if there is no room for long though
            nobody else uses the cluster. A Ray that alray started is then ended, so that the run starts another one.
    """
    tell_s, end_s = time.monotonic() + _UNTOLD_S, time.monotonic() + _OWN_ROOM_S
    while not look():
        if not has_room(bundles, labels):
            raise StageError(f"the cluster has lost nodes: {len(bundles)} {whose} have no room on it")
        if time.monotonic() > end_s and (end_leading_processes() or is_idle(bundles)):
            raise StageError(f"Ray has no room for {len(bundles)} {whose}, though nobody else uses it")
        if time.monotonic() > tell_s:
            note(f"others use the cluster: waiting for room for {len(bundles)} {whose}")
            tell_s = math.inf
