"""The network between two hosts: how long a small message takes, and how many bytes a second go each way.

One host listens and calls `answer`, the other one calls `ask`. Both use plain TCP, as gloo does.
"""

from __future__ import annotations

import socket
import time
from statistics import median

PINGS = 40
STREAM_S = 0.4
"""How long bytes are sent each way."""
_PING_BYTES = 64
_BLOCK_BYTES = 1 << 18
_SILENT_S = 30.0  # the other process may still start


def listen(address: str) -> socket.socket:
    """A socket that waits for `ask` on this address of the host, on a port that the system picks."""
    return socket.create_server((address, 0))


def answer(listener: socket.socket) -> float:
    """Answer one `ask`; return the seconds per byte of what it sent. Raises OSError if it does not come."""
    listener.settimeout(_SILENT_S)
    with listener, listener.accept()[0] as peer:
        peer.settimeout(_SILENT_S)
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PINGS):
            peer.sendall(_exactly(peer, _PING_BYTES))
        s_per_byte = _take(peer)
        _stream(peer)
        return s_per_byte


def ask(address: str, port: int) -> tuple[float, float, float]:
    """Seconds that a small message takes one way; seconds from the last byte sent until it was on its way, which the
    system's buffer explains; and seconds per byte of what `answer` sent. Raises OSError."""
    with socket.create_connection((address, port), timeout=_SILENT_S) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for _ in range(PINGS):
            began = time.perf_counter()
            peer.sendall(b"\0" * _PING_BYTES)
            _exactly(peer, _PING_BYTES)
            times.append(time.perf_counter() - began)
        _stream(peer)
        sent = time.perf_counter()
        peer.recv(1)
        buffered_s = time.perf_counter() - sent - median(times)
        return median(times) / 2, max(0.0, buffered_s), _take(peer)


def _exactly(peer: socket.socket, nbytes: int) -> bytes:
    taken = b""
    while len(taken) < nbytes:
        part = peer.recv(nbytes - len(taken))
        if not part:
            raise ConnectionError("the other end closed the connection")
        taken += part
    return taken


def _stream(peer: socket.socket) -> None:
    """Send zeros for a while, and then no more."""
    block, end = b"\0" * _BLOCK_BYTES, time.perf_counter() + STREAM_S
    while time.perf_counter() < end:
        peer.sendall(block)
    peer.shutdown(socket.SHUT_WR)


def _take(peer: socket.socket) -> float:
    """Seconds per byte of a stream, to its end.

    The first half of the time is left out: TCP begins slowly, and a limited link lets a first burst through.
    """
    arrived: list[tuple[float, int]] = [(time.perf_counter(), 0)]
    buffer = bytearray(_BLOCK_BYTES)
    while count := peer.recv_into(buffer):
        arrived.append((time.perf_counter(), count))
    first, last = arrived[0][0], arrived[-1][0]
    late = [(at, count) for at, count in arrived if at >= (first + last) / 2]
    if len(late) < 2:
        raise ConnectionError("the other end sent too little to measure")
    return (late[-1][0] - late[0][0]) / sum(count for _, count in late[1:])
