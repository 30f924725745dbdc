"""How the stages of a replica find one another: a store held by stage 0, and process groups over gloo."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist

from alray.channel.link import Receiver, Sender
from alray.channel.point_to_point import GroupBarrier, PointToPointReceiver, PointToPointSender
from alray.channel.shared_memory import Ring, SharedMemoryReceiver, SharedMemorySender
from alray.nn.network import Network
from alray.stage.assignment import Assignment
from alray.stage.links import Links

_UP, _DOWN, _ROUND = 1, 2, 3  # tags: a stream of messages each way, and one from the last stage to the first


@dataclass(frozen=True)
class Meeting:
    """Where the stages of a replica meet."""

    host: str
    port: int
    one_host: bool  # whether all of them are on one machine


def host_store(host: str) -> dist.TCPStore:
    """The store of a replica, on a port the system picks; it lives as long as this object."""
    return dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)


def join(
    meeting: Meeting, assignment: Assignment, store: dist.TCPStore | None, timeout_s: float
) -> tuple[dist.ProcessGroup, dist.TCPStore]:
    """Meet the other stages; returns the group their edges run over, and the store."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if meeting.one_host else _interface_of(_own_address(meeting.host))
    if store is None:
        store = dist.TCPStore(meeting.host, meeting.port, is_master=False, timeout=timedelta(seconds=timeout_s))
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


def links_of(
    assignment: Assignment,
    network: Network,
    device: torch.device,
    group: dist.ProcessGroup,
    store: dist.Store,
    meeting: Meeting,
    timeout_s: float,
) -> Links:
    """The ends of this stage's edges. Collective: every stage of the replica calls it."""
    plan, stage = assignment.plan, assignment.stage
    barrier_group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    assert isinstance(barrier_group, dist.ProcessGroup), "every stage belongs to the barrier"
    mine = plan.stage_plans[stage]
    below, above = stage - 1, stage + 1
    ends = _Ends(assignment, device, group, store, meeting.one_host, timeout_s)
    links = Links(barrier=GroupBarrier(barrier_group, timeout_s))
    # Senders first: a shared memory is made by its sender and waited for by its receiver.
    if stage > 0:
        links.to_below = ends.sender(below, _DOWN, assignment.down_capacity_bytes(network, mine.first))
    if above < plan.stages:
        links.to_above = ends.sender(above, _UP, assignment.up_capacity_bytes(network, mine.last))
    last = plan.stages - 1
    closes_ring = plan.virtual_stages > 1
    if closes_ring and stage == last:
        links.to_first = ends.sender(0, _ROUND, assignment.up_capacity_bytes(network, mine.last))
    if stage > 0:
        links.from_below = ends.receiver(below, _UP, assignment.up_capacity_bytes(network, mine.first - 1))
    if above < plan.stages:
        links.from_above = ends.receiver(above, _DOWN, assignment.down_capacity_bytes(network, mine.last + 1))
    if closes_ring and stage == 0:
        links.from_last = ends.receiver(last, _ROUND, assignment.up_capacity_bytes(network, mine.last))
    return links


@dataclass(frozen=True)
class _Ends:
    """Makes the ends of one stage's edges: over shared memory on one host, over gloo between hosts."""

    assignment: Assignment
    device: torch.device
    group: dist.ProcessGroup
    store: dist.Store
    one_host: bool
    timeout_s: float

    def sender(self, peer: int, tag: int, capacity_bytes: int) -> Sender:
        edge = f"{self.assignment.stage}->{peer}"
        if not self.one_host:
            return PointToPointSender(
                edge=edge,
                peer=peer,
                tag=tag,
                capacity_bytes=capacity_bytes,
                group=self.group,
                timeout_s=self.timeout_s,
            )
        sender = SharedMemorySender(
            edge=edge,
            peer=peer,
            tag=tag,
            capacity_bytes=capacity_bytes,
            in_flight=self.assignment.plan.in_flight,
            group=self.group,
            timeout_s=self.timeout_s,
        )
        self.store.set(f"ring {tag} {edge}", sender.ring.as_text())
        return sender

    def receiver(self, peer: int, tag: int, capacity_bytes: int) -> Receiver:
        edge = f"{peer}->{self.assignment.stage}"
        if not self.one_host:
            return PointToPointReceiver(
                edge=edge,
                peer=peer,
                tag=tag,
                capacity_bytes=capacity_bytes,
                in_flight=self.assignment.plan.in_flight,
                device=self.device,
                group=self.group,
                timeout_s=self.timeout_s,
            )
        return SharedMemoryReceiver(
            edge=edge,
            peer=peer,
            tag=tag,
            ring=Ring.of_text(self.store.get(f"ring {tag} {edge}").decode()),
            device=self.device,
            group=self.group,
            timeout_s=self.timeout_s,
        )


def _own_address(peer: str) -> str:
    """This host's address on the way to a peer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, 9))  # no packet is sent: a datagram socket only picks its route
        address: str = probe.getsockname()[0]
    return address


def _interface_of(address: str) -> str:
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return name
    return "lo"
