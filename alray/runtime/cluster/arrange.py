"""Which node each stage goes to: a pure function of what the stages ask for and what the nodes have left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from alray.config.sections.resources import ACCELERATORS

Bundle = Mapping[str, float]


@dataclass(frozen=True)
class Shares:
    """Resources counted in shares of GPUs: Ray puts each share on one GPU, so what several leave adds up to none.

    A GPU counts only where all stages that share GPUs ask for the same part. Of different parts it is not known which
    lie on one GPU together, so there their sum counts.
    """

    parts: Mapping[str, int]
    """What a stage asks for of one GPU, in ten-thousandths as Ray counts, by the name of the resource."""

    @classmethod
    def of(cls, bundles: Sequence[Bundle]) -> Shares:
        """Those that these bundles ask for."""
        asked = {name: {round(bundle.get(name, 0.0) * 10_000) for bundle in bundles} for name in ACCELERATORS}
        below = {name: [part for part in parts if 0 < part < 10_000] for name, parts in asked.items()}
        return cls({name: parts[0] for name, parts in below.items() if len(parts) == 1})

    def on_one(self, name: str) -> int:
        """How many shares one GPU holds."""
        return 10_000 // self.parts[name]

    def asked(self, bundle: Bundle) -> dict[str, float]:
        """What a stage asks for, counted in shares."""
        whole = {name: bundle[name] * self.on_one(name) for name in self.parts if name in bundle}
        return {**bundle, **{name: 1.0 if 0 < bundle[name] < 1 else number for name, number in whole.items()}}

    def held(self, node: Bundle, free: Bundle) -> dict[str, float]:
        """The most that a node may hold of what it has free, counted in shares.

        Where others use a multiple of the same part, each has a share of its own.

        Args:
            node: what it has where nothing is in use.
        """
        counted = {}
        for name, part in self.parts.items():
            if name in free and name in node:
                taken, rest = divmod(round((node[name] - free[name]) * 10_000), part)
                left = int(node[name]) * self.on_one(name) - (taken if rest == 0 else 0)
                counted[name] = min(left, round(free[name] * 10_000) // part)
        return {**free, **counted}


def arrange(bundles: Sequence[Bundle], stages: int, free: Mapping[str, Bundle], here: str) -> tuple[str, ...] | None:
    """The node of each bundle; None where one has no room.

    A replica lies on one node if one has room for all of it. Otherwise it is cut into few runs of neighbouring stages:
    the node that holds the longest run takes the next stages. Among equal nodes, one without the same stages of another
    replica comes first, then the driver's, then the fullest, which leaves the others whole.

    Args:
        bundles: what each stage asks for, replica by replica.
        stages: of a replica.
        free: what each node has left.
        here: the driver's node.
    """
    left = {node: dict(resources) for node, resources in free.items()}
    placed: list[str] = []
    while len(placed) < len(bundles):
        stage = len(placed) % stages
        wanted = bundles[len(placed) : len(placed) + stages - stage]
        ranks = {node: _rank(node, left[node], wanted, range(stage, stages), placed, here) for node in left}
        node = max(ranks, key=ranks.__getitem__, default=here)
        held = ranks[node].held if ranks else 0
        if held == 0:
            return None
        for bundle in wanted[:held]:
            _take(bundle, left[node])
        placed += [node] * held
    return tuple(placed)


class _Rank(NamedTuple):
    """The larger the better, the first item first."""

    held: int  # of the next stages, how many have room
    same_stages: int  # minus the number of these that it holds for other replicas
    is_here: bool
    left: float  # minus its processors


def _rank(node: str, free: Bundle, wanted: Sequence[Bundle], stages: range, placed: Sequence[str], here: str) -> _Rank:
    """
    Args:
        stages: the numbers of the `wanted` ones.
        placed: the nodes of all stages before them.
    """
    held = _held(wanted, free)
    same = sum(other == node and index % stages.stop in stages[:held] for index, other in enumerate(placed))
    return _Rank(held, -same, node == here, -free.get("CPU", 0.0))


def _held(wanted: Sequence[Bundle], free: Bundle) -> int:
    """How many of these bundles, from the first on, have room on a node together."""
    left = dict(free)
    for number, bundle in enumerate(wanted):
        if any(left.get(name, 0.0) < amount for name, amount in bundle.items()):
            return number
        _take(bundle, left)
    return len(wanted)


def _take(bundle: Bundle, left: dict[str, float]) -> None:
    for name, amount in bundle.items():
        left[name] = left.get(name, 0.0) - amount
