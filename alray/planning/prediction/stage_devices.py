"""The devices and links that the stages of a plan run on, as an engine finds them or as machines are described."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from alray.planning.prediction.costs import Link

Ends = tuple[str, str]
"""Two nodes, of which the first sends to the second."""
WayParts = Mapping[tuple[int, Hashable], Link]
"""What messages between two ends go through, with `up_s_per_byte` in their direction. The key has a name, and before it
0 where those who send through parts of this name share one, or 1 where those who receive do."""


def slowest_of(speeds: Sequence[float], stages: int, shares: Sequence[int] = ()) -> list[float]:
    """The speed of each stage: that of the replica that takes longest, because the others wait for it.

    Args:
        speeds: of the devices, replica by replica.
        shares: samples of each replica. The costs are those of the largest share, so a device with half as many
            samples counts as twice as fast. (): all alike.
    """
    of_share = [max(shares) / share for share in shares] or [1.0] * (len(speeds) // stages)
    return [
        min(speed * part for speed, part in zip(speeds[stage::stages], of_share, strict=True))
        for stage in range(stages)
    ]


@dataclass(frozen=True)
class StageDevices:
    """The devices that there are for the stages of a plan."""

    stage_speed: tuple[float, ...] = ()
    """Speed of each stage's device, relative to the device that the costs were measured on (`slowest_of`); (): all
    1."""
    evaluation_speed: tuple[float, ...] | None = None
    """The same of the devices of replica 0, whatever its share: it evaluates. None: not known."""
    memory_bytes: tuple[int | None, ...] = ()
    """The memory of each stage's accelerator where it was measured; None, or (): that of one here. Where all stages run
    on processors, the part of its machine's memory that each has."""
    cores: int | None = None
    """Processors that all stages share; None: as many as on this machine."""
    nodes: tuple[str, ...] = ()
    """The node of each stage, replica by replica; (): all on one."""
    links: tuple[Link | None, ...] = ()
    """Between the nodes of neighbouring stages, as in `alray.planning.prediction.setting.StepSetting`."""
    replica_link: Link | None = None
    """The slowest between the replicas of a stage; None if those of each stage are on one node."""
    to_measure: bool = False
    """Whether an engine is still to find them: the memory here says nothing of theirs."""

    def lines(self) -> Iterator[str]:
        """Yield the lines about them for the user."""
        if self.stage_speed:
            speeds = ", ".join(f"{speed:.2f}" for speed in self.stage_speed)
            yield f"relative to this machine, the devices of the stages have speeds of {speeds}"
        if self.nodes:
            yield f"the stages are on {', '.join(self.nodes)}"
        for stage, link in enumerate(self.links):
            if link is not None:
                yield f"between stage {stage} and stage {(stage + 1) % len(self.links)}: {link}"
        if self.replica_link is not None:
            yield f"between the replicas of a stage: {self.replica_link}"


AS_HERE = StageDevices()
"""Devices like that of this machine."""


@dataclass(frozen=True)
class MessageWays:
    """The ways that messages take between the nodes of stages, and averages between those of replicas.

    Attributes:
        nodes: the node of each stage, replica by replica. The stages of a node share its network card, and the slowest
            replica counts.
        ring: whether the last stage also sends to the first one.
        down: whether gradients go down.
    """

    nodes: tuple[str, ...]
    stages: int
    ring: bool
    down: bool = True

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
        """The nodes whose links count, in both directions."""
        found = {self._ends(pair) for pairs in (*self._between, self._rounds) for pair in pairs}
        return found | {ends[::-1] for ends in found}

    def links(self, known: Mapping[Ends, WayParts]) -> tuple[tuple[Link | None, ...], Link | None]:
        """The link above each stage, () if there are none, and the slowest link between the replicas of a stage.

        Args:
            known: between two nodes, and within a node where stages there have a link. None counts for others.
        """
        between = [pair for pairs in self._between for pair in pairs]
        sharing = self._users(known, [*between, *(pair[::-1] for pair in between if self.down)])
        slowest = [self._slowest(known, sharing, pairs) for pairs in self._between]
        replica_link = self._slowest(known, self._users(known, self._rounds), self._rounds)
        above = tuple([*slowest, *[None] * (self.stages - len(slowest))] if any(slowest) else ())
        return above, replica_link

    def _ends(self, pair: tuple[int, int]) -> Ends:
        return self.nodes[pair[0]], self.nodes[pair[1]]

    def _users(self, known: Mapping[Ends, WayParts], pairs: Sequence[tuple[int, int]]) -> Counter[tuple[int, Hashable]]:
        """How many stages share each part. One counts once: its messages go one after another. What stays within a node
        is not shared."""
        crossing = [pair for pair in pairs if self.nodes[pair[0]] != self.nodes[pair[1]]]
        using = {(part, pair[part[0]]) for pair in crossing for part in known.get(self._ends(pair), ())}
        return Counter(part for part, _ in using)

    def _slowest(
        self, known: Mapping[Ends, WayParts], users: Counter[tuple[int, Hashable]], pairs: Sequence[tuple[int, int]]
    ) -> Link | None:
        """The slowest of these links in all respects, where so many stages share each part."""
        ends = [self._ends(pair) for pair in pairs if pair[0] != pair[1]]
        found = [(known[each], known[each[::-1]]) for each in ends if each in known]
        if not found:
            return None

        def s_per_byte(parts: WayParts) -> float:
            return max(link.up_s_per_byte * max(1, users[name]) for name, link in parts.items())

        links = [link for up, _ in found for link in up.values()]
        return Link(
            latency_s=max(link.latency_s for link in links),
            up_s_per_byte=max(s_per_byte(up) for up, _ in found),
            down_s_per_byte=max(s_per_byte(down) for _, down in found),
            buffer_bytes=min(link.buffer_bytes for link in links),
            of_device=all(link.of_device for link in links),
        )
