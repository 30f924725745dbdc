"""How stages find one another: over stores that stages 0 hold, and process groups of gloo.

The stages of a replica meet over one store, to open their edges. The replicas of a stage meet over another store, which
all replicas share.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import psutil
import torch
import torch.distributed as dist

from alray.core.accelerator import current
from alray.data.worker_names import OWNER
from alray.models.network import Network
from alray.runtime.channel.all_reduce import AllReduce, all_reduce
from alray.runtime.channel.edge import Barrier, Receiver, Sender
from alray.runtime.channel.edge_kind import EdgeKind, Seat, edge_kind, host_kind, sum_kind
from alray.runtime.channel.host_barrier import HostBarrier, Pipes
from alray.runtime.channel.inbox import Inbox
from alray.runtime.channel.nccl import HEADER_CAPACITY, NcclReceiver, NcclSender
from alray.runtime.channel.point_to_point import GroupBarrier, PointToPointReceiver, PointToPointSender
from alray.runtime.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender, SlotRing
from alray.runtime.channel.slow_link import SlowLink
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.ports import WAITING_COPIES, MessageSizes, Ports, Stream

_HOST = torch.device("cpu")
# Tags: the two streams between virtual stages, and copies from the last stage to every other one.
_UP = 1
_DOWN = 2
_COPY = 3

_BACKEND = "backend"
"""The all-reduce of gloo or NCCL, which sums over replicas whatever algorithm the spec chooses for gradients."""


@dataclass(frozen=True)
class MeetingPoint:
    """The store where some stages meet.

    Attributes:
        place: `host:port` where it listens; where all of them are on one machine, its file, which only the user can
            open. Other users of the machine could read and change what lies in a store that listens, on 127.0.0.1 too.
        one_host: whether all of them are on one machine.
    """

    place: str
    one_host: bool

    @property
    def host(self) -> str:
        """The address at which a store listens."""
        return self.place.rpartition(":")[0]


@dataclass(frozen=True)
class Meeting:
    """Where a stage meets the other stages of its replica, and the same stage of other replicas.

    None where there are no others.

    Attributes:
        seats: where each stage of its replica computes.
        replica_seats: where this stage of each replica computes.
    """

    stages: MeetingPoint | None
    replicas: MeetingPoint | None
    seats: tuple[Seat, ...] = ()
    replica_seats: tuple[Seat, ...] = ()


class HostedStore:
    """A store that this process holds for others. It lives as long as this object."""

    def __init__(self, host: str | None) -> None:
        """
        Args:
            host: an address of this host; None where all who meet are on it.
        """
        self.store: dist.Store
        if host is None:
            self._folder = TemporaryDirectory(prefix="alray-", dir=os.environ.get(OWNER), ignore_cleanup_errors=True)
            file = str(Path(self._folder.name, "store"))
            self.store = dist.FileStore(file)
            self.point = MeetingPoint(file, one_host=True)
            return
        listener = socket.create_server((host, 0))
        port = listener.getsockname()[1]
        # A store that opens its own socket listens on every address of the host.
        self.store = dist.TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        self.point = MeetingPoint(f"{host}:{port}", one_host=False)


def choose_interface(meeting: Meeting) -> None:
    """Let NCCL connect over the loopback interface where all stages and replicas are on one host, and otherwise over
    the interface that leads to the other hosts. NCCL reads this once in a process. What the user has set stays."""
    points = [point for point in (meeting.stages, meeting.replicas) if point is not None]
    elsewhere = next((point for point in points if not point.one_host), None)
    interface = "lo" if elsewhere is None else _interface_of(_own_address(elsewhere.host))
    os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def join(
    point: MeetingPoint, assignment: Assignment, store: dist.Store | None, timeout_s: float
) -> tuple[dist.ProcessGroup, dist.Store]:
    """Meet the other stages of the replica. Returns the group that their edges run over, and the store.

    Args:
        store: on the stage that holds it, otherwise None.
    """
    store = enter(point, store, timeout_s)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=assignment.stage,
        world_size=assignment.plan.stages,
        timeout=timedelta(seconds=timeout_s),
    )
    group = dist.group.WORLD
    assert group is not None
    return group, store


def join_replicas(
    point: MeetingPoint,
    assignment: Assignment,
    store: dist.Store | None,
    seats: Sequence[Seat],
    timeout_s: float,
) -> tuple[dist.ProcessGroup, dist.Store]:
    """Meet the same stage of the other replicas. Returns the group for gradients, and the store of all replicas.

    Args:
        seats: where this stage of each replica computes.
    """
    store = enter(point, store, timeout_s)
    kind = sum_kind(seats, assignment.spec.replicas.all_reduce)
    return replica_group(store, assignment, timeout_s, kind=kind), store


def replica_sums(store: dist.Store, assignment: Assignment, seats: Sequence[Seat], timeout_s: float) -> AllReduce:
    """Sums over the replicas of a stage, within its computations. Collective, as `replica_group`.

    They have a process group of their own, because another thread uses that of the gradients at the same time.
    """
    kind = sum_kind(seats, _BACKEND)
    group = replica_group(store, assignment, timeout_s, "norms", kind=kind)
    return all_reduce(_BACKEND)(group, timeout_s=timeout_s, holds_host=False)


def replica_group(
    store: dist.Store,
    assignment: Assignment,
    timeout_s: float,
    purpose: str = "gradients",
    *,
    kind: EdgeKind = EdgeKind.GLOO,
) -> dist.ProcessGroup:
    """One rank for each replica of a stage. Collective: each of them calls it, in a process or a thread of its own.

    It is not the default group, which joins the stages of one replica.

    Args:
        purpose: names the group.
    """
    own = dist.PrefixStore(f"{purpose} of stage {assignment.stage}", store)
    rank, size = assignment.replica, assignment.plan.replicas
    if kind is EdgeKind.NCCL:
        joined = _nccl_group(own, rank, size, timeout_s)
        # NCCL connects with the first operation. That would otherwise be part of the first mini-batch.
        all_reduce(_BACKEND)(joined, timeout_s=timeout_s).sum(torch.zeros(1, device=current()))
        return joined
    group = dist.ProcessGroupGloo(own, rank, size, timedelta(seconds=timeout_s))
    return cast(dist.ProcessGroup, group)  # it has all of a group's operations


def _nccl_group(store: dist.Store, rank: int, size: int, timeout_s: float) -> dist.ProcessGroup:
    from alray.core.compat import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=timeout_s)
    return cast(dist.ProcessGroup, ProcessGroupNCCL(store, rank, size, options))


def enter(point: MeetingPoint, store: dist.Store | None, timeout_s: float) -> dist.Store:
    """The store of this meeting, and gloo led over the interface on which the others are.

    Args:
        store: in the process that holds it, otherwise None.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if point.one_host else _interface_of(_own_address(point.host))
    timeout = timedelta(seconds=timeout_s)
    if store is None and point.one_host:
        store = dist.FileStore(point.place)
    elif store is None:
        port = int(point.place.rpartition(":")[2])
        store = dist.TCPStore(point.host, port, is_master=False, timeout=timeout)
    store.set_timeout(timeout)
    return store


def ports_of(
    assignment: Assignment,
    network: Network,
    device: torch.device,
    group: dist.ProcessGroup,
    store: dist.Store,
    point: MeetingPoint,
    seats: Sequence[Seat],
    timeout_s: float,
) -> Ports:
    """The ends of this stage's edges. Collective: every stage of the replica calls it.

    Args:
        seats: where each stage of the replica computes.
    """
    plan, stage = assignment.plan, assignment.stage
    sizes = MessageSizes(assignment, network)
    last = plan.stages - 1
    ends = _Ends(assignment, device, group, store, seats, timeout_s)
    barrier = _barrier(assignment, store, point, timeout_s)
    senders: dict[tuple[Stream, int], Sender] = {}
    inboxes: dict[tuple[Stream, int], Inbox] = {}
    # Senders first: a shared memory is made by its sender and waited for by its receiver.
    for lower, upper in plan.edges_between():
        if stage == upper:
            waiting = plan.waiting(upper, lower, down=True)
            senders["down", lower] = ends.sender(lower, _DOWN, sizes.down(upper), waiting=waiting)
        if stage == lower:
            nbytes, rest_bytes = sizes.up(lower), sizes.labels_up(lower)
            waiting = plan.waiting(lower, upper, down=False)
            senders["up", upper] = ends.sender(upper, _UP, nbytes, rest_bytes=rest_bytes, waiting=waiting)
    copying = network.method.copy_every is not None
    copies_below: list[Sender] = []
    if copying and stage == last:
        copies_below = [ends.sender(peer, _COPY, sizes.copy(), waiting=WAITING_COPIES) for peer in range(last)]
    for lower, upper in plan.edges_between():
        if stage == upper:
            nbytes, rest_bytes = sizes.up(lower), sizes.labels_up(lower)
            waiting = plan.waiting(lower, upper, down=False)
            inboxes["up", lower] = Inbox(ends.receiver(lower, _UP, nbytes, rest_bytes=rest_bytes, waiting=waiting))
        if stage == lower:
            waiting = plan.waiting(upper, lower, down=True)
            inboxes["down", upper] = Inbox(ends.receiver(upper, _DOWN, sizes.down(upper), waiting=waiting))
    copies = None
    if copying and stage < last:
        copies = ends.receiver(last, _COPY, sizes.copy(), waiting=WAITING_COPIES)
    ends.connect()
    return Ports.of(
        plan, stage, senders=senders, inboxes=inboxes, barrier=barrier, copies=copies, copies_below=copies_below
    )


def _barrier(assignment: Assignment, store: dist.Store, point: MeetingPoint, timeout_s: float) -> Barrier:
    """Collective: every stage of the replica calls it."""
    if not point.one_host:
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        assert isinstance(group, dist.ProcessGroup), "every stage belongs to the barrier"
        return GroupBarrier(group, timeout_s)
    leads = assignment.stage == 0
    if leads:
        pipes = Pipes.made(assignment.plan.stages)
        store.set("barrier", pipes.as_text())
    else:
        pipes = Pipes.of_text(store.get("barrier").decode()).opened()
    return HostBarrier(pipes, leads=leads, timeout_s=timeout_s)


class _Ends:
    """Opens the ends of one stage's edges, each of its own kind."""

    def __init__(
        self,
        assignment: Assignment,
        device: torch.device,
        group: dist.ProcessGroup,
        store: dist.Store,
        seats: Sequence[Seat],
        timeout_s: float,
    ) -> None:
        self._assignment = assignment
        self._device = device
        self._group = group
        self._store = store
        self._seats = seats
        self._timeout_s = timeout_s
        self._on_gpus: dict[tuple[str, int], NcclSender | NcclReceiver] = {}
        self._slow_links: dict[int, SlowLink] = {}

    def kind(self, peer: int) -> EdgeKind:
        """The kind of the edges to and from stage `peer`."""
        return edge_kind(self._seats[self._assignment.stage], self._seats[peer])

    def sender(self, peer: int, tag: int, capacity_bytes: int, *, waiting: int, rest_bytes: int = 0) -> Sender:
        """
        Args:
            capacity_bytes: of the largest message.
            rest_bytes: of the largest second part; 0: messages have one part.
            waiting: messages that may wait on this edge.
        """
        edge = f"{self._assignment.stage}->{peer}"
        if self.kind(peer) is not EdgeKind.NCCL:
            return self._host_sender(edge, peer, tag, capacity_bytes, rest_bytes, self._device, waiting)
        rest_header = HEADER_CAPACITY if rest_bytes else 0
        headers = self._host_sender(edge, peer, tag, HEADER_CAPACITY, rest_header, _HOST, waiting)
        sender = NcclSender(
            edge=edge,
            headers=headers,
            group=self._pair(edge, tag, 0),
            device=self._device,
            timeout_s=self._timeout_s,
        )
        self._on_gpus[edge, tag] = sender
        return sender

    def receiver(self, peer: int, tag: int, capacity_bytes: int, *, waiting: int, rest_bytes: int = 0) -> Receiver:
        """
        Args:
            capacity_bytes, rest_bytes, waiting: as for the sender.
        """
        edge = f"{peer}->{self._assignment.stage}"
        if self.kind(peer) is not EdgeKind.NCCL:
            return self._host_receiver(edge, peer, tag, capacity_bytes, rest_bytes, self._device, waiting)
        rest_header = HEADER_CAPACITY if rest_bytes else 0
        headers = self._host_receiver(edge, peer, tag, HEADER_CAPACITY, rest_header, _HOST, waiting)
        receiver = NcclReceiver(edge=edge, headers=headers, group=self._pair(edge, tag, 1), device=self._device)
        self._on_gpus[edge, tag] = receiver
        return receiver

    def connect(self) -> None:
        """Connect the GPUs. All stages connect their edges in one order, so that no two wait for each other."""
        for key in sorted(self._on_gpus):
            self._on_gpus[key].connect()

    def _pair(self, edge: str, tag: int, rank: int) -> dist.ProcessGroup:
        """The two stages of an edge, for NCCL."""
        return _nccl_group(dist.PrefixStore(f"nccl {tag} {edge}", self._store), rank, 2, self._timeout_s)

    def _host_sender(
        self,
        edge: str,
        peer: int,
        tag: int,
        capacity_bytes: int,
        rest_bytes: int,
        device: torch.device,
        waiting: int,
    ) -> Sender:
        """
        Args:
            device: where the sender finds tensors.
        """
        if host_kind(self._seats[self._assignment.stage], self._seats[peer]) is EdgeKind.GLOO:
            return PointToPointSender(
                edge=edge,
                peer=peer,
                tag=tag,
                capacity_bytes=capacity_bytes,
                group=self._group,
                timeout_s=self._timeout_s,
                rest_bytes=rest_bytes,
                device=device,
            )
        sender = SharedMemorySender(
            edge=edge,
            capacity_bytes=capacity_bytes,
            in_flight=waiting,
            timeout_s=self._timeout_s,
            device=device,
            link=self._slow_link(peer),
        )
        self._store.set(f"ring {tag} {edge}", sender.ring.as_text())
        return sender

    def _slow_link(self, peer: int) -> SlowLink | None:
        """The link to stage `peer`, which all edges to it share; None if the spec says none."""
        stage, last = self._assignment.stage, self._assignment.plan.stages - 1
        lower = min(stage, peer) if abs(stage - peer) == 1 else last
        section = self._assignment.spec.pipeline.link(lower)
        if section is None:
            return None
        made = SlowLink(s_per_byte=section.s_per_byte, latency_s=section.latency_s)
        return self._slow_links.setdefault(peer, made)

    def _host_receiver(
        self,
        edge: str,
        peer: int,
        tag: int,
        capacity_bytes: int,
        rest_bytes: int,
        device: torch.device,
        waiting: int,
    ) -> Receiver:
        """
        Args:
            device: where the receiver gives tensors.
        """
        if host_kind(self._seats[self._assignment.stage], self._seats[peer]) is EdgeKind.GLOO:
            return PointToPointReceiver(
                edge=edge,
                peer=peer,
                tag=tag,
                capacity_bytes=capacity_bytes,
                in_flight=waiting,
                device=device,
                group=self._group,
                timeout_s=self._timeout_s,
                rest_bytes=rest_bytes,
            )
        return SharedMemoryReceiver(
            edge=edge,
            ring=SlotRing.of_text(self._store.get(f"ring {tag} {edge}").decode()),
            device=device,
            timeout_s=self._timeout_s,
        )


def _own_address(peer: str) -> str:
    """The address of this host on its route to a peer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))  # no packet is sent: a datagram socket only picks its route
        address: str = probe.getsockname()[0]
    return address


def _interface_of(address: str) -> str:
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return name
    return "lo"
