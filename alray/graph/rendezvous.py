"""How the stages of a replica find one another: a store held by stage 0, and process groups over gloo."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist

from alray.channel.point_to_point import GroupBarrier, PointToPointReceiver, PointToPointSender
from alray.nn.network import Network
from alray.stage.assignment import Assignment
from alray.stage.loop import Links

_UP, _DOWN = 1, 2  # tags: one stream of messages each way


@dataclass(frozen=True)
class Meeting:
    """Where the stages of a replica meet."""

    host: str
    port: int
    one_host: bool  # whether all of them are on one machine


def host_store(host: str) -> dist.TCPStore:
    """The store of a replica, on a port the system picks; it lives as long as this object."""
    return dist.TCPStore(host, 0, is_master=True, wait_for_workers=False)


def join(meeting: Meeting, assignment: Assignment, store: dist.TCPStore | None, timeout_s: float) -> dist.ProcessGroup:
    """Meet the other stages; returns the group their edges run over."""
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
    return group


def links_of(
    assignment: Assignment, network: Network, device: torch.device, group: dist.ProcessGroup, timeout_s: float
) -> Links:
    """The ends of this stage's edges. Collective: every stage of the replica calls it."""
    plan, stage = assignment.plan, assignment.stage
    barrier_group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
    assert isinstance(barrier_group, dist.ProcessGroup), "every stage belongs to the barrier"
    mine = plan.stage_plans[stage]
    links = Links(barrier=GroupBarrier(barrier_group, timeout_s))

    def receiver(peer: int, tag: int, capacity_bytes: int) -> PointToPointReceiver:
        return PointToPointReceiver(
            edge=f"{peer}->{stage}",
            peer=peer,
            tag=tag,
            capacity_bytes=capacity_bytes,
            in_flight=plan.in_flight,
            device=device,
            group=group,
            timeout_s=timeout_s,
        )

    def sender(peer: int, tag: int, capacity_bytes: int) -> PointToPointSender:
        return PointToPointSender(
            edge=f"{stage}->{peer}",
            peer=peer,
            tag=tag,
            capacity_bytes=capacity_bytes,
            group=group,
            timeout_s=timeout_s,
        )

    if stage > 0:
        links.from_below = receiver(stage - 1, _UP, assignment.up_capacity_bytes(network, mine.first - 1))
        links.to_below = sender(stage - 1, _DOWN, assignment.down_capacity_bytes(network, mine.first))
    if stage < plan.stages - 1:
        links.to_above = sender(stage + 1, _UP, assignment.up_capacity_bytes(network, mine.last))
        links.from_above = receiver(stage + 1, _DOWN, assignment.down_capacity_bytes(network, mine.last + 1))
    return links


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
