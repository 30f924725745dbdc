"""Opens the edges of a stage, each of the kind that `alray.runtime.channel.edge_kind` says, and the barrier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from alray.models.network import Network
from alray.runtime.channel.edge import Barrier, Receiver, Sender
from alray.runtime.channel.edge_kind import DeviceLocation, EdgeKind, edge_kind, host_kind
from alray.runtime.channel.host_barrier import HostBarrier, Pipes
from alray.runtime.channel.inbox import Inbox
from alray.runtime.channel.nccl import HEADER_CAPACITY, NcclReceiver, NcclSender
from alray.runtime.channel.point_to_point import GroupBarrier, PointToPointReceiver, PointToPointSender
from alray.runtime.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender, SlotRing
from alray.runtime.channel.slow_link import SlowLink
from alray.runtime.rendezvous.groups import nccl_group
from alray.runtime.rendezvous.store import MeetingPoint
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.ports import WAITING_COPIES, MessageSizes, Ports, Stream

_HOST = torch.device("cpu")
# The two streams between virtual stages, and copies from the last stage to every other one.
_TAGS: dict[Stream, int] = {"up": 1, "down": 2}
_COPY = 3


def ports_of(
    assignment: Assignment,
    network: Network,
    device: torch.device,
    group: dist.ProcessGroup,
    store: dist.Store,
    point: MeetingPoint,
    locations: Sequence[DeviceLocation],
    timeout_s: float,
) -> Ports:
    """The ends of this stage's edges. Collective: every stage of the replica calls it.

    Args:
        locations: where each stage of the replica computes.
    """
    plan, stage = assignment.plan, assignment.stage
    sizes = MessageSizes(assignment, network)
    last = plan.stages - 1
    ends = EdgeEnds(assignment, device, group, store, locations, timeout_s)
    barrier = _barrier(assignment, store, point, timeout_s)
    senders: dict[tuple[Stream, int], Sender] = {}
    inboxes: dict[tuple[Stream, int], Inbox] = {}
    # Stream, source, target; bytes of a message, of its second part, and how many may wait.
    ways: list[tuple[Stream, int, int, tuple[int, int, int]]] = []
    for lower, upper in plan.edges_between():
        ways.append(("down", upper, lower, (sizes.down(upper), 0, plan.waiting(upper, lower, down=True))))
        waiting = plan.waiting(lower, upper, down=False)
        ways.append(("up", lower, upper, (sizes.up(lower), sizes.labels_up(lower), waiting)))
    # Senders first: a shared memory is made by its sender and waited for by its receiver.
    for stream, source, target, sized in ways:
        if stage == source:
            senders[stream, target] = ends.sender(target, _TAGS[stream], *sized)
    copying = network.method.copy_every is not None
    copies_below: list[Sender] = []
    if copying and stage == last:
        copies_below = [ends.sender(peer, _COPY, sizes.copy(), 0, WAITING_COPIES) for peer in range(last)]
    for stream, source, target, sized in ways:
        if stage == target:
            inboxes[stream, source] = Inbox(ends.receiver(source, _TAGS[stream], *sized))
    copies = None
    if copying and stage < last:
        copies = ends.receiver(last, _COPY, sizes.copy(), 0, WAITING_COPIES)
    ends.connect()
    return Ports.of(
        plan, stage, senders=senders, inboxes=inboxes, barrier=barrier, copies=copies, copies_below=copies_below
    )


def _barrier(assignment: Assignment, store: dist.Store, point: MeetingPoint, timeout_s: float) -> Barrier:
    """Collective: every stage of the replica calls it."""
    if not point.one_host or assignment.plan.clips_together:
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        assert isinstance(group, dist.ProcessGroup), "every stage belongs to the barrier"
        return GroupBarrier(group, timeout_s)
    leads = assignment.stage == 0
    if leads:
        pipes = Pipes.made(assignment.plan.stages)
        store.set("barrier", pipes.as_text())
    else:
        pipes = Pipes.of_text(store.get("barrier").decode()).here()
    return HostBarrier(pipes, leads=leads, timeout_s=timeout_s)


@dataclass
class EdgeEnds:
    """Opens the ends of one stage's edges, each of the kind of its edge."""

    assignment: Assignment
    device: torch.device
    group: dist.ProcessGroup
    store: dist.Store
    locations: Sequence[DeviceLocation]
    timeout_s: float

    def __post_init__(self) -> None:
        self._on_gpus: dict[tuple[str, int], NcclSender | NcclReceiver] = {}
        self._slow_links: dict[int, SlowLink] = {}

    def kind(self, peer: int) -> EdgeKind:
        """The kind of the edges to and from stage `peer`."""
        return edge_kind(self.locations[self.assignment.stage], self.locations[peer])

    def _host_kind(self, peer: int) -> EdgeKind:
        """The kind of an edge to or from stage `peer` that carries what is in host memory."""
        return host_kind(self.locations[self.assignment.stage], self.locations[peer])

    def sender(self, peer: int, tag: int, capacity_bytes: int, rest_bytes: int, waiting: int) -> Sender:
        """
        Args:
            capacity_bytes: of the largest message.
            rest_bytes: of the largest second part; 0: messages have one part.
            waiting: messages that may wait on this edge.
        """
        edge = f"{self.assignment.stage}->{peer}"
        device = self.device
        if on_gpus := self.kind(peer) is EdgeKind.NCCL:  # then headers alone go through the host
            capacity_bytes, rest_bytes, device = HEADER_CAPACITY, HEADER_CAPACITY if rest_bytes else 0, _HOST
        sender: Sender
        if self._host_kind(peer) is EdgeKind.GLOO:
            sender = PointToPointSender(
                edge=edge,
                peer=peer,
                tag=tag,
                capacity_bytes=capacity_bytes,
                group=self.group,
                timeout_s=self.timeout_s,
                rest_bytes=rest_bytes,
                device=device,
            )
        else:
            sender = SharedMemorySender(
                edge=edge,
                capacity_bytes=capacity_bytes,
                in_flight=waiting,
                timeout_s=self.timeout_s,
                device=device,
                link=self._slow_link(peer),
            )
            self.store.set(f"ring {tag} {edge}", sender.ring.as_text())
        if not on_gpus:
            return sender
        self._on_gpus[edge, tag] = found = NcclSender(
            edge=edge,
            headers=sender,
            group=self._pair(edge, tag, 0),
            device=self.device,
            timeout_s=self.timeout_s,
        )
        return found

    def receiver(self, peer: int, tag: int, capacity_bytes: int, rest_bytes: int, waiting: int) -> Receiver:
        """
        Args:
            capacity_bytes, rest_bytes, waiting: as for the sender.
        """
        edge = f"{peer}->{self.assignment.stage}"
        device = self.device
        if on_gpus := self.kind(peer) is EdgeKind.NCCL:
            capacity_bytes, rest_bytes, device = HEADER_CAPACITY, HEADER_CAPACITY if rest_bytes else 0, _HOST
        receiver: Receiver
        if self._host_kind(peer) is EdgeKind.GLOO:
            receiver = PointToPointReceiver(
                edge=edge,
                peer=peer,
                tag=tag,
                capacity_bytes=capacity_bytes,
                in_flight=waiting,
                device=device,
                group=self.group,
                timeout_s=self.timeout_s,
                rest_bytes=rest_bytes,
            )
        else:
            ring = SlotRing.of_text(self.store.get(f"ring {tag} {edge}").decode())
            receiver = SharedMemoryReceiver(edge=edge, ring=ring, device=device, timeout_s=self.timeout_s)
        if not on_gpus:
            return receiver
        self._on_gpus[edge, tag] = found = NcclReceiver(
            edge=edge,
            headers=receiver,
            group=self._pair(edge, tag, 1),
            device=self.device,
        )
        return found

    def connect(self) -> None:
        """Connect the GPUs. All stages connect their edges in one order, so that no two wait for each other."""
        for key in sorted(self._on_gpus):
            self._on_gpus[key].connect()

    def _pair(self, edge: str, tag: int, rank: int) -> dist.ProcessGroup:
        """The two stages of an edge, for NCCL."""
        return nccl_group(dist.PrefixStore(f"nccl {tag} {edge}", self.store), rank, 2, self.timeout_s)

    def _slow_link(self, peer: int) -> SlowLink | None:
        """The link to stage `peer`, which all edges to it share; None if the spec says none."""
        stage, last = self.assignment.stage, self.assignment.plan.stages - 1
        lower = min(stage, peer) if abs(stage - peer) == 1 else last
        section = self.assignment.spec.pipeline.link(lower)
        if section is None:
            return None
        made = SlowLink(s_per_byte=section.s_per_byte, latency_s=section.latency_s)
        return self._slow_links.setdefault(peer, made)
