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

LEADING = ("gcs_server", "raylet")
ANSWERING_S = 10.0
_HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""How a client of gRPC begins."""

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


def leading_answer() -> bool:
    """Whether both answer. True where alray started none in this process, and False after the end of one."""
    return ended_process() is None and all(answers(psutil.Process(process.pid)) for _, process in leading_processes())


def answers(process: psutil.Process) -> bool:
    """Whether a process takes a connection and says something within `ANSWERING_S`. True before it listens.

    The system accepts connections to a process that is stopped (SIGSTOP), which then says nothing.
    """
    try:
        sockets = process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return True
    addresses = [each.laddr for each in sockets if each.status == psutil.CONN_LISTEN]
    return all(_answers_at((address.ip, address.port)) for address in addresses)


def _answers_at(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=ANSWERING_S) as connection:
            connection.sendall(_HTTP_2)
            connection.recv(1)
    except ConnectionResetError:  # by a server that asks for TLS
        return True
    except OSError:
        return False
    return True


def has_ended(process: psutil.Process) -> bool:
    """Whether a process is gone, or is a zombie."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def end_leading_processes() -> bool:
    """End both. False if alray started none in this process."""
    node, leading = _node(), leading_processes()
    for _, process in leading:
        process.kill()
        process.wait()
    if leading:
        _hang_up(int(node.gcs_address.rpartition(":")[2]))
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
