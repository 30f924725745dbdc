"""The GCS and the raylet of the Ray that alray started in this process: whether they run and answer, and their end.

A Ray that the user's program started in this process is none of alray's: here it counts as none.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from alray.core.stopped import status_of

LEADING = ("gcs_server", "raylet")
ANSWERING_S = 10.0


_is_ours = threading.Event()


@contextmanager
def ours() -> Iterator[None]:
    """Within the block, a Ray that this process starts is alray's."""
    _is_ours.set()
    try:
        yield
    finally:
        _is_ours.clear()


def _node() -> Any:
    """Ray's object of the node that alray started in this process; None before it has started and after its end."""
    from alray.core.compat import ray_worker

    return ray_worker._global_node if _is_ours.is_set() else None


def leading_processes() -> list[tuple[str, subprocess.Popen[bytes]]]:
    """The GCS and the raylet of the Ray that alray started in this process, with their names; none before they have
    started."""
    node = _node()
    return [(name, info.process) for name in LEADING for info in node.all_processes.get(name, ())] if node else []


def ended_process() -> str | None:
    """The leading process that has ended; None if there is none."""
    return next((name for name, process in leading_processes() if process.poll() is not None), None)


def is_stopped() -> bool:
    """Whether somebody has stopped a leading process of that Ray (SIGSTOP)."""
    with suppress(psutil.NoSuchProcess):
        return any(
            status_of(psutil.Process(process.pid)) == psutil.STATUS_STOPPED for _, process in leading_processes()
        )
    return False


def _gcs_address() -> tuple[str, int] | None:
    """Where the GCS of that Ray listens; None before it has started and after its end."""
    node = _node()
    if node is None or not node.all_processes.get("gcs_server"):
        return None
    host, _, port = node.gcs_address.rpartition(":")
    return host, int(port)


def accepts_connections() -> bool:
    """Whether a connection to the GCS is possible. True before it has started."""
    address = _gcs_address()
    return address is None or _accepts_connections_at(address)


def accepts_connections_of(gcs: psutil.Process) -> bool:
    """Whether a connection to a GCS is possible that is not yet a part of the Ray of this process. True before it
    listens and after its end."""
    try:
        sockets = gcs.net_connections("tcp")
    except psutil.NoSuchProcess:
        return True
    addresses = [each.laddr for each in sockets if each.status == psutil.CONN_LISTEN]
    return all(_accepts_connections_at((address.ip, address.port)) for address in addresses)


def _accepts_connections_at(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=ANSWERING_S).close()
    except OSError:
        return False
    return True


def end_leading_processes() -> bool:
    """End both. False if alray started none in this process."""
    address, leading = _gcs_address(), leading_processes()
    for _, process in leading:
        process.kill()
        process.wait()
    if address is not None:
        _hang_up(address[1])
    return bool(leading)


def _hang_up(port: int) -> None:
    """Shut down the connections of this process to a port of a process that has ended.

    If the network is gone, this process does not learn of the end, and Ray's threads would wait for an answer for
    minutes. By then Ray's C++ code may have ended this process.
    """
    for connection in psutil.Process().net_connections("tcp"):
        if connection.raddr and connection.raddr.port == port:
            # One that has ended by itself cannot be shut down.
            with suppress(OSError), socket.socket(fileno=os.dup(connection.fd)) as own:
                own.shutdown(socket.SHUT_RDWR)
