"""The devices and links that the stages of a plan run on, as an engine finds them or as machines are described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from alray.planning.prediction.costs import Link

Ends = tuple[str, str]
"""Two nodes; what goes from the first to the second goes up."""


@dataclass(frozen=True)
class StageDevices:
    """The devices that there are for the stages of a plan."""

    stage_speed: tuple[float, ...] = ()
    """Speed of each stage's device, relative to the device that the costs were measured on; (): all 1."""
    cores: int | None = None
    """Processors that all stages share; None: as many as on this machine."""
    nodes: tuple[str, ...] = ()
    """The node of each stage, replica by replica; (): all on one."""
    links: tuple[Link | None, ...] = ()
    """Between the nodes of neighbouring stages, as in `alray.planning.prediction.setting.StepSetting`."""
    replica_link: Link | None = None
    """The slowest between the replicas of a stage; None if those of each stage are on one node."""

    @property
    def lines(self) -> list[str]:
        """The lines about them for the user."""
        lines = []
        if self.stage_speed:
            speeds = ", ".join(f"{speed:.2f}" for speed in self.stage_speed)
            lines.append(f"relative to this machine, the devices of the stages have speeds of {speeds}")
        if self.nodes:
            lines.append(f"the stages are on {', '.join(self.nodes)}")
        for stage, link in enumerate(self.links):
            if link is not None:
                lines.append(f"between stage {stage} and stage {(stage + 1) % len(self.links)}: {link}")
        if self.replica_link is not None:
            lines.append(f"between the replicas of a stage: {self.replica_link}")
        return lines


@dataclass(frozen=True)
class Ways:
    """The ways that messages take between the nodes of stages, and averages between those of replicas.

    Attributes:
        nodes: the node of each stage, replica by replica. The stages of a node share its network card, and the slowest
            replica counts.
        ring: whether the last stage also sends to the first one.
    """

    nodes: tuple[str, ...]
    stages: int
    ring: bool

    @property
    def _between(self) -> list[list[tuple[int, int]]]:
        """The pairs of neighbours of each edge, over all replicas."""
        last = self.stages if self.ring else self.stages - 1
        return [
            [(first + stage, first + (stage + 1) % self.stages) for first in range(0, len(self.nodes), self.stages)]
            for stage in range(last)
        ]

    @property
    def _rounds(self) -> list[tuple[int, int]]:
        """Averages go round the replicas of each stage, those of all stages at about the same time."""
        return [(stage, (stage + self.stages) % len(self.nodes)) for stage in range(len(self.nodes))]

    @property
    def ends(self) -> set[Ends]:
        """The nodes whose links count."""
        return {self._ends(pair) for pairs in (*self._between, self._rounds) for pair in pairs}

    def links(self, known: Mapping[Ends, Link]) -> tuple[tuple[Link | None, ...], Link | None]:
        """The link above each stage, () if there are none, and the slowest link between the replicas of a stage.

        Args:
            known: the links between two nodes, and within a node where stages there have one. None counts for others.
        """
        between = [pair for pairs in self._between for pair in pairs]
        sharing = card_users(self.nodes, [*between, *(pair[::-1] for pair in between)])
        slowest = [self._slowest(known, sharing, pairs) for pairs in self._between]
        replica_link = self._slowest(known, card_users(self.nodes, self._rounds), self._rounds)
        above = tuple([*slowest, *[None] * (self.stages - len(slowest))] if any(slowest) else ())
        return above, replica_link

    def _ends(self, pair: tuple[int, int]) -> Ends:
        return self.nodes[pair[0]], self.nodes[pair[1]]

    def _slowest(
        self, known: Mapping[Ends, Link], users: Counter[str], pairs: Sequence[tuple[int, int]]
    ) -> Link | None:
        """The slowest of these links in all respects, where so many stages of each node share its card."""
        found = []
        for low, high in (self._ends(pair) for pair in pairs if pair[0] != pair[1]):
            if (low, high) in known:
                shared = low != high
                found.append((known[low, high], users[low] or 1 if shared else 1, users[high] or 1 if shared else 1))
        if not found:
            return None
        return Link(
            latency_s=max(link.latency_s for link, _, _ in found),
            up_s_per_byte=max(link.up_s_per_byte * below for link, below, _ in found),
            down_s_per_byte=max(link.down_s_per_byte * above for link, _, above in found),
            buffer_bytes=min(link.buffer_bytes for link, _, _ in found),
        )


def card_users(nodes: Sequence[str], pairs: Iterable[tuple[int, int]]) -> Counter[str]:
    """How many stages of each node send to other nodes. A stage counts once: its messages go one after another.

    Args:
        nodes: of each stage.
        pairs: a stage that sends, and the one it sends to.
    """
    return Counter(nodes[stage] for stage in {sender for sender, goal in pairs if nodes[sender] != nodes[goal]})
