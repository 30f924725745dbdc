"""The stores where stages meet: one for the stages of a replica, and one for all replicas. Stage 0 holds each."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import torch.distributed as dist

from alray.data.worker_names import OWNER
from alray.runtime.channel.edge_kind import DeviceLocation


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

    @property
    def interface(self) -> str:
        """That of this machine on which the others are reached."""
        return "lo" if self.one_host else _interface_of(_own_address(self.host))


@dataclass(frozen=True)
class Meeting:
    """Where a stage meets the other stages of its replica, and the same stage of other replicas.

    None where there are no others.

    Attributes:
        locations: where each stage of its replica computes.
        replica_locations: where this stage of each replica computes.
    """

    stages: MeetingPoint | None
    replicas: MeetingPoint | None
    locations: tuple[DeviceLocation, ...] = ()
    replica_locations: tuple[DeviceLocation, ...] = ()


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


def enter(point: MeetingPoint, store: dist.Store | None, timeout_s: float) -> dist.Store:
    """The store of this meeting, and gloo led over the interface on which the others are.

    Args:
        store: in the process that holds it, otherwise None.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = point.interface
    timeout = timedelta(seconds=timeout_s)
    if store is None and point.one_host:
        store = dist.FileStore(point.place)
    elif store is None:
        port = int(point.place.rpartition(":")[2])
        store = dist.TCPStore(point.host, port, is_master=False, timeout=timeout)
    store.set_timeout(timeout)
    return store


def choose_interface(meeting: Meeting) -> None:
    """Let NCCL connect over the loopback interface where all stages and replicas are on one host, and otherwise over
    the interface that leads to the other hosts. NCCL reads this once in a process. What the user has set stays."""
    points = (meeting.stages, meeting.replicas)
    elsewhere = (point.interface for point in points if point is not None and not point.one_host)
    os.environ.setdefault("NCCL_SOCKET_IFNAME", next(elsewhere, "lo"))


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
