"""A link with a bandwidth and a delay between two network namespaces of this machine, for kernels without netem.

    python -m tests.cluster.far_link NAMESPACE NAMESPACE MBIT_PER_S DELAY_MS

Each namespace gets an interface `far`, until this process ends. What is sent into one of them comes out of the other:
packets take the link one after another, and each then travels for the delay.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

_CLONE_NEWNET = 0x40000000
_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_LONGEST_PACKET = 65536


def interface(namespace: str) -> int:
    """Make `far` in this namespace, and enter it. Returns the file that the packets of `far` are read from."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/var/run/netns/{namespace}").open() as file:
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH", b"far", _TUN_WITHOUT_HEADER))
    subprocess.run(["ip", "link", "set", "far", "mtu", "9000", "up"], check=True)
    return device


def carry(source: int, goal: int, s_per_byte: float, delay_s: float) -> None:
    """Carry packets in one direction for ever."""
    under_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

    def deliver() -> None:
        while True:
            arrives_s, packet = under_way.get()
            time.sleep(max(0.0, arrives_s - time.monotonic()))
            os.write(goal, packet)

    Thread(target=deliver, daemon=True).start()
    free_s = 0.0
    while True:
        packet = os.read(source, _LONGEST_PACKET)
        free_s = max(free_s, time.monotonic()) + len(packet) * s_per_byte
        under_way.put((free_s + delay_s, packet))


def main() -> None:
    first, second = (interface(namespace) for namespace in sys.argv[1:3])
    s_per_byte, delay_s = 8e-6 / float(sys.argv[3]), float(sys.argv[4]) / 1e3
    print("ready", flush=True)  # noqa: T201
    Thread(target=carry, args=(first, second, s_per_byte, delay_s), daemon=True).start()
    carry(second, first, s_per_byte, delay_s)


if __name__ == "__main__":
    main()
