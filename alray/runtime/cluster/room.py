"""Whether the nodes of a cluster have room for what stages request, and waiting until they have."""

from __future__ import annotations

import math
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from alray.core.counting import counted
from alray.core.errors import PlanError, StageError
from alray.runtime.cluster.arrange import Shares
from alray.runtime.cluster.nodes import Bundle, ClusterNode, living_nodes
from alray.runtime.local_ray.head import end_leading_processes

_UNTOLD_S = 5.0
"""Seconds without room before a run prints a note: what ran before it may still be ending."""
_OWN_ROOM_S = 120.0
"""Seconds that a Ray that alray started may take to free what ended, and to start processes."""
_STEPS_OF_A_WAY = 10
"""To fill a node; to compare what two ways leave is one step."""
_MOST_STEPS = 500_000
"""Of the search for the best way to place bundles: half a second or so."""


def require_room(bundles: Sequence[Bundle], nodes: Sequence[Bundle], labels: Mapping[str, str] | None = None) -> None:
    """Raise PlanError if the nodes could not hold all bundles even if they were empty. A bundle lies on one node.

    Where the cluster has as much as they request together, and the ways to place them are too many to look at, none is
    raised.
    """
    shares = Shares.of(bundles)
    asked, there = [shares.asked(bundle) for bundle in bundles], [shares.held(node, node) for node in nodes]
    enough = _has_enough(asked, there)
    if enough and _placed_in_turn(asked, there):
        return
    held = _most_held(asked, there)
    if held == len(bundles) or (held is None and enough):
        return
    room = "" if held is None else f", room for {held}"
    for name, part in shares.parts.items():
        room += f"; one {name} holds {counted(shares.on_one(name), 'stage')} of {part / 10_000:g}"
    kinds = Counter(" and ".join(f"{amount:g} {name}" for name, amount in bundle.items()) for bundle in bundles)
    requested = f"of {next(iter(kinds))} each" if len(kinds) == 1 else f"({_listed(kinds)})"
    names = dict.fromkeys(name for bundle in bundles for name in bundle)
    totals = ", ".join(f"{sum(node.get(name, 0.0) for node in nodes):g} {name}" for name in names)
    raise PlanError(
        f"{counted(len(bundles), 'stage')} {requested} can never be placed: the cluster has {totals} "
        f"on {len(nodes)} node{'s' if len(nodes) != 1 else ''}{_with(labels)}{room}",
        key="resources.per_stage",
        hint="lower pipeline.stages or resources.per_stage, or attach to a larger cluster",
    )


def _listed(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {requested}" for requested, count in kinds.items())


def _has_enough(bundles: Sequence[Bundle], nodes: Sequence[Bundle]) -> bool:
    """Whether each bundle has room on some node, and the nodes have as much as the bundles request together."""
    return _fits(_total(bundles), _total(nodes)) and all(
        any(_fits(dict(kind), node) for node in map(_exact, nodes)) for kind in _kinds(bundles)
    )


def _placed_in_turn(bundles: Sequence[Bundle], nodes: Sequence[Bundle]) -> bool:
    """Whether all bundles find room if each takes the first node that has it, those that need the most of what there is
    first. The nodes must have all that is requested."""
    total = _total(nodes)
    kinds = _kinds(bundles)
    shares = {kind: max((need / total[name] for name, need in kind), default=0.0) for kind in kinds}
    free = list(map(_exact, nodes))
    for kind in sorted(kinds, key=shares.__getitem__, reverse=True):
        waiting = kinds[kind]
        for node in free:
            placed = min([waiting, *(int(node.get(name, 0.0) // need) for name, need in kind)])
            waiting -= placed
            node.update({name: node[name] - placed * need for name, need in kind if placed})
        if waiting:
            return False
    return True


def _most_held(bundles: Sequence[Bundle], nodes: Sequence[Bundle]) -> int | None:
    """How many of the bundles have room on the nodes, in the best way to place them. None: the ways are too many.

    After each node, what can be left is kept, as a number of bundles of each kind: of two, one that leaves no more of
    any kind is enough.
    """
    kinds = _kinds(bundles)
    wanted = [dict(kind) for kind in kinds]
    lefts = [tuple(kinds.values())]
    steps = 0
    for node in map(_exact, nodes):
        found: set[tuple[int, ...]] = set()
        for left in lefts:
            for more in _fillings(wanted, left, node):
                found.add(more)
                steps += _STEPS_OF_A_WAY
                if steps > _MOST_STEPS:
                    return None
        lefts = []
        for left in sorted(found, key=sum):
            steps += len(lefts)
            if steps > _MOST_STEPS:
                return None
            if not any(all(map(operator.le, kept, left)) for kept in lefts):
                lefts.append(left)
    return len(bundles) - min(map(sum, lefts))


def _fillings(wanted: Sequence[Bundle], left: tuple[int, ...], free: Bundle) -> Iterator[tuple[int, ...]]:
    """What is left of each wanted kind in each way to fill a node; the last kind gets all the room there is."""
    if not left:
        yield ()
        return
    ways = [(left[0], dict(free))]
    while ways[-1][0] and _fits(wanted[0], ways[-1][1]):
        rest, room = ways[-1]
        ways.append((rest - 1, {name: amount - wanted[0].get(name, 0.0) for name, amount in room.items()}))
    for rest, room in ways if len(left) > 1 else ways[-1:]:
        for others in _fillings(wanted[1:], left[1:], room):
            yield (rest, *others)


def _kinds(bundles: Sequence[Bundle]) -> Counter[tuple[tuple[str, float], ...]]:
    """How many of the bundles request the same."""
    return Counter(tuple(sorted(_exact(bundle).items())) for bundle in bundles)


def _total(resources: Sequence[Bundle]) -> Bundle:
    total: Bundle = {}
    for name, amount in (entry for each in resources for entry in _exact(each).items()):
        total[name] = total.get(name, 0.0) + amount
    return total


def _exact(resources: Bundle) -> Bundle:
    """In whole ten-thousandths, as Ray counts."""
    return {name: parts for name, amount in resources.items() if (parts := round(amount * 10_000))}


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
