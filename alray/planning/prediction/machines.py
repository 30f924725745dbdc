"""Machines that are not here: their devices by published peaks, the links between them, and which stage lies where.

The stages take the devices in order, replica by replica.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from alray.core.counting import counted
from alray.core.errors import PlanError
from alray.core.quantities import BITS_PER_S, BYTES, SECONDS, value_of
from alray.planning.prediction.costs import Link
from alray.planning.prediction.stage_devices import MessageWays, StageDevices, WayParts, slowest_of

MOST_DEVICES = 4096
"""Devices of all nodes together. More would take long to list, and a typing error is more likely."""
NO_LIMIT_BYTES = 2.0**50
"""That a link takes from its sender before they are on their way: the edge itself limits them."""
_NODE_LATENCY_S = 5e-6
"""Of a message between two devices of a node: what NCCL assumes for a ring (nccl/src/graph/tuning.cc, 2.10)."""


@dataclass(frozen=True)
class ReachedSpeed:
    """What a device reaches of what is published of it.

    Attributes:
        efficiency: the share of its peak, in matrix products and convolutions.
        bandwidth: the share of the bandwidth of its memory.
        launch_s: seconds that an operation takes at least, because torch launches a kernel for it.
    """

    efficiency: float
    bandwidth: float
    launch_s: float


USUAL = ReachedSpeed(0.65, 0.75, 12e-6)
"""Set on the layers of GPT and BERT in docs/published_runs, on V100 and P100 in float32 and float16: forwards of 1,000
words or more come out at 0.87 to 1.09 of their measured seconds, forward and backward together at 0.95 to 1.25."""
BEST, WORST = ReachedSpeed(0.85, 0.9, 5e-6), ReachedSpeed(0.45, 0.5, 50e-6)
"""What the spread of such times is computed with. Layers of 128 words took longer: 45 us an operation."""


@dataclass(frozen=True)
class Device:
    """A kind of device.

    Attributes:
        memory_bytes: None: nothing is known of it, and it is no limit.
        peaks: operations a second by number type, `float32`, `tf32`, `bf16`, `float64`: published, without sparsity.
            {}: none are known, so costs must come from elsewhere.
        bytes_per_s: of its memory.
        link_bytes_per_s: between two of them on one node, in one direction; 0: none is known.
        source: where the figures are published.
        accelerator: whether it computes by itself, while its host goes on.
    """

    name: str
    memory_bytes: int | None
    peaks: Mapping[str, float] = field(default_factory=dict, hash=False)
    bytes_per_s: float = 0.0
    link_bytes_per_s: float = 0.0
    source: str = ""
    accelerator: bool = True

    @property
    def link(self) -> Link | None:
        """Between two of them on one node, as published."""
        if not self.link_bytes_per_s:
            return None
        s_per_byte = 1 / self.link_bytes_per_s
        return Link(_NODE_LATENCY_S, s_per_byte, s_per_byte, NO_LIMIT_BYTES)


def _published(name: str, memory_gb: float, bandwidth_gb: float, link_gb: float, source: str, **tera: float) -> Device:
    peaks = {each: 1e12 * speed for each, speed in tera.items()}
    return Device(name, int(memory_gb * 1e9), peaks, bandwidth_gb * 1e9, link_gb * 1e9, source)


_PCIE_3, _PCIE_4, _PCIE_5 = 16.0, 32.0, 64.0  # GB/s of 16 lanes in one direction
_PUBLISHED = (
    # GB of memory, GB/s of it, GB/s to another device of the node in one direction (half of NVLink's sum of both). Of
    # P100 and V100 one NVLink: in a DGX-1 two devices have one or two between them.
    _published("P40", 24, 346, _PCIE_3, "NVIDIA Tesla P40 datasheet", float32=12, float64=0.37),
    _published("P100", 16, 732, 20, "NVIDIA Tesla P100 datasheet, SXM2", float32=10.6, float64=5.3),
    _published("V100", 16, 900, 25, "NVIDIA V100 datasheet, SXM2", float32=15.7, float64=7.8),
    _published("V100-32GB", 32, 900, 25, "NVIDIA V100 datasheet, SXM2", float32=15.7, float64=7.8),
    _published("T4", 16, 300, _PCIE_3, "NVIDIA T4 datasheet", float32=8.1, float64=0.25),
    _published("A10", 24, 600, _PCIE_4, "NVIDIA A10 datasheet", float32=31.2, tf32=62.5, bf16=125),
    _published("A40", 48, 696, 56.25, "NVIDIA A40 datasheet", float32=37.4, tf32=74.8, bf16=149.7),
    _published("A100", 80, 2039, 300, "NVIDIA A100 datasheet, SXM", float32=19.5, tf32=156, bf16=312, float64=19.5),
    _published(
        "A100-40GB", 40, 1555, 300, "NVIDIA A100 datasheet, SXM", float32=19.5, tf32=156, bf16=312, float64=19.5
    ),
    _published("L4", 24, 300, _PCIE_4, "NVIDIA L4 datasheet", float32=30.3, tf32=60, bf16=121),
    _published("L40S", 48, 864, _PCIE_4, "NVIDIA L40S datasheet", float32=91.6, tf32=183, bf16=362),
    _published("H100", 80, 3350, 450, "NVIDIA H100 datasheet, SXM", float32=67, tf32=494, bf16=989, float64=67),
    _published(
        "H100-PCIe", 80, 2000, _PCIE_5, "NVIDIA H100 datasheet, PCIe", float32=51, tf32=378, bf16=756, float64=51
    ),
    _published("H200", 141, 4800, 450, "NVIDIA H200 datasheet, SXM", float32=67, tf32=494, bf16=989, float64=67),
    _published("B200", 180, 7700, 900, "NVIDIA HGX B200 datasheet", float32=75, tf32=1100, bf16=2250, float64=37),
    _published("RTX3090", 24, 936, _PCIE_4, "NVIDIA GA102 whitepaper", float32=35.6, tf32=35.6, bf16=71),
    _published("RTX4090", 24, 1008, _PCIE_4, "NVIDIA Ada whitepaper", float32=82.6, tf32=82.6, bf16=165.2),
    _published("MI250X", 64, 1600, 50, "AMD MI250X brochure, one of two dies", float32=47.9, bf16=191.5, float64=47.9),
    _published("MI300X", 192, 5300, 64, "AMD MI300X datasheet", float32=163.4, tf32=653.7, bf16=1307.4, float64=163.4),
)
DEVICES = {each.name: each for each in _PUBLISHED}
"""Kinds of devices by name. A name without a size is the most usual one."""
CPU = "cpu"
"""A processor. No peaks are published that a stage would reach, so its costs must come from a probe."""


@dataclass(frozen=True)
class Nodes:
    """Nodes that are alike.

    Attributes:
        within: between two devices of a node; None: as through the memory that they share.
        card: the network card of each node; None: there is one node only.
        published: whether `within` is what is published of the device.
    """

    device: Device
    count: int
    devices: int
    within: Link | None
    card: Link | None
    published: bool = False


@dataclass(frozen=True)
class Machines:
    """Groups of nodes.

    Attributes:
        line: between nodes of two groups, besides their cards; None: the cards alone count.
    """

    groups: tuple[Nodes, ...]
    line: Link | None = None

    def __post_init__(self) -> None:
        nodes = sum(group.count for group in self.groups)
        if nodes > 1 and not all(group.card for group in self.groups):
            raise PlanError(
                f"{counted(nodes, 'node')} are connected, and no link is given",
                hint="say how fast the network card of a node is, such as 25 GB/s or 100 Mbit/s, 20 ms",
                key="machines.link",
            )
        if self.line is not None and len(self.groups) < 2:
            raise PlanError(
                "`line` is between the nodes of two groups, and these are one group",
                hint="leave it out, or name the groups one by one, such as 4xA100,4xA100",
                key="machines.line",
            )

    def __str__(self) -> str:
        return ", ".join(
            f"{group.devices} {group.device.name}"
            if group.count == 1
            else f"{counted(group.count, 'node')} of {group.devices} {group.device.name}"
            for group in self.groups
        )

    @property
    def kinds(self) -> tuple[Device, ...]:
        """The kinds of devices, in order."""
        return tuple(dict.fromkeys(group.device for group in self.groups))

    @cached_property
    def devices(self) -> tuple[tuple[str, Nodes], ...]:
        """Each device: the name of its node, and the group of that."""
        found: list[tuple[str, Nodes]] = []
        number = 0
        for group in self.groups:
            for _ in range(group.count):
                found += [(f"node {number}", group)] * group.devices
                number += 1
        return tuple(found)

    def taken(self, stages: int, replicas: int) -> tuple[tuple[str, Nodes], ...]:
        """The devices of the stages, replica by replica. Raises PlanError where there are too few."""
        wanted = stages * replicas
        if wanted > len(self.devices):
            of_replicas = f" in {counted(replicas, 'replica')}" if replicas > 1 else ""
            raise PlanError(
                f"{counted(stages, 'stage')}{of_replicas} need {counted(wanted, 'device')}, and {self} are "
                f"{len(self.devices)}",
                hint="lower pipeline.stages or replicas.count, or name more devices",
                key="pipeline.stages",
            )
        return self.devices[:wanted]

    def memory_limits(self, stages: int, replicas: int) -> tuple[int, ...]:
        """Bytes of each stage's device, of the smallest among its replicas; () if they are not known of all."""
        taken = [group.device.memory_bytes for _, group in self.taken(stages, replicas)]
        known = [each for each in taken if each is not None]
        return () if len(known) < len(taken) else tuple(min(known[stage::stages]) for stage in range(stages))

    def stage_devices(
        self,
        stages: int,
        replicas: int = 1,
        *,
        train_s: Callable[[Device], float] = lambda device: 1.0,
        shares: Sequence[int] = (),
        ring: bool = False,
        down: bool = True,
    ) -> StageDevices:
        """What the stages run on.

        Raises PlanError where there are too few devices.

        Args:
            train_s: seconds of all components on a kind of device; asked where the stages take several kinds.
            shares: as for `slowest_of`.
            ring: whether the last stage also sends to the first one.
            down: whether gradients go down.
        """
        taken = self.taken(stages, replicas)
        nodes = tuple(node for node, _ in taken)
        ways = MessageWays(nodes, stages, ring, down)
        groups = dict(taken)
        known = {ends: parts for ends in ways.ends if (parts := self._way(groups, *ends))}
        links, replica_link = ways.links(known)
        first = taken[0][1].device
        each = [1.0 if group.device == first else train_s(first) / train_s(group.device) for _, group in taken]
        slowest = tuple(slowest_of(each, stages, shares))
        alone = len(set(nodes)) == 1
        return StageDevices(
            stage_speed=() if set(slowest) == {1.0} else slowest,
            evaluation_speed=tuple(each[:stages]),
            cores=taken[0][1].devices if alone and not first.accelerator else None,
            nodes=() if alone else nodes,
            links=links,
            replica_link=replica_link,
        )

    def _way(self, groups: Mapping[str, Nodes], low: str, high: str) -> WayParts:
        """What messages from `low` to `high` go through: the links of devices, or both cards and perhaps a line."""
        below, above = groups[low], groups[high]
        if low == high:
            return {} if below.within is None else {(0, "within"): replace(below.within, of_device=True)}
        assert below.card is not None and above.card is not None, "several nodes have cards"
        cards: WayParts = {(0, low): below.card, (1, high): above.card}
        return cards if below is above or self.line is None else {**cards, (0, (id(below), id(above))): self.line}


def link_of(text: str) -> Link:
    """The link that `25 GB/s` or `100 Mbit/s, 20 ms` stands for, the same in both directions. Raises PlanError."""
    read = re.fullmatch(r"([^,]*?/s)(?:[ ,]+(\S.*))?", text.strip())
    bits_per_s = value_of(read[1], BITS_PER_S) if read is not None else None
    latency_s = value_of(read[2], SECONDS) if read is not None and read[2] else 0.0
    if not bits_per_s or latency_s is None:
        raise PlanError(
            f"`{text}` is not a link",
            hint="write a bandwidth and, after a comma, a latency: 25 GB/s, or 100 Mbit/s, 20 ms",
        )
    return Link(latency_s, 8 / bits_per_s, 8 / bits_per_s, NO_LIMIT_BYTES)


def device_of(name: str, own: Mapping[str, Device] | None = None) -> Device:
    """The device of this name, of `own` or of `DEVICES`; or `cpu`; or `24GB`, of which nothing but the memory is known.

    Raises PlanError where there is none.
    """
    known = {**DEVICES, **(own or {})}
    by_lower = {each.lower(): each for each in known}
    if name.lower() in by_lower:
        return known[by_lower[name.lower()]]
    if name.lower() == CPU:
        return Device(CPU, None, accelerator=False)
    if memory := value_of(name, BYTES):
        return Device(name, int(memory))
    raise PlanError(
        f"nothing is known of a device `{name}`",
        hint=f"known are {', '.join(known)} and {CPU}; a size such as 24GB stands for a device whose costs are given, "
        "and machines.devices describes others",
    )


_GROUP = re.compile(r"(?:(\d{1,5})x)?(\d{1,5})x(\S.*)")


def parse_nodes(text: str, own: Mapping[str, Device] | None = None) -> list[tuple[Device, int, int]]:
    """The device, the nodes and the devices of a node of each group, from `8xA100`, `2x8xA100` or `8xA100,4xV100`.

    Raises PlanError.
    """
    found = []
    for part in text.split(","):
        read = _GROUP.fullmatch(part.strip())
        if read is None or 0 in (int(read[1] or 1), int(read[2])):
            raise PlanError(
                f"`{part.strip()}` does not say how many devices there are",
                hint="write, for example, 8xA100; 2x8xA100 for two nodes of eight; or 8xA100,4xV100",
            )
        found.append((device_of(read[3], own), int(read[1] or 1), int(read[2])))
    return found


def require_few(devices: int) -> None:
    """Raise PlanError for more devices than plans count with."""
    if devices > MOST_DEVICES:
        raise PlanError(f"these are {devices:,} devices", hint=f"name {MOST_DEVICES:,} at most")


def machines_of(
    nodes: Sequence[tuple[Device, int, int, Link | None, Link | None]],
    *,
    link: Link | None = None,
    within: Link | None = None,
    line: Link | None = None,
) -> Machines:
    """Machines with links where a group does not say its own.

    Raises PlanError where several nodes have none, and for more than `MOST_DEVICES`.

    Args:
        nodes: of each group the device, the nodes, the devices of a node, and its own `link` and `within`.
        link: the network card of a node; with one node only, what connects its devices.
        within: what connects the devices of a node; None: what is published of the device.
    """
    require_few(sum(count * devices for _, count, devices, *_ in nodes))
    alone = len(nodes) == 1 and nodes[0][1] == 1
    groups = []
    for device, count, devices, own_link, own_within in nodes:
        card = own_link or link
        told = own_within or within or (card if alone else None)
        between = None if devices == 1 else told or device.link
        if devices > 1 and device.accelerator and between is None:
            raise PlanError(
                f"how fast the link between two {device.name} of a node is was not said, and is not published",
                hint="say it, such as `within: 16 GB/s`, or with one node `link`",
            )
        groups.append(Nodes(device, count, devices, between, None if alone else card, published=told is None))
    return Machines(tuple(groups), line)
