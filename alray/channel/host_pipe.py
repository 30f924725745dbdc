"""Pipes between processes of one host: the fastest way to wake another one.

They have no names: a process opens those of another one through its descriptors, so nothing is left behind however a
process ends.
"""

from __future__ import annotations

import os
import select


def open_of(pid: int, descriptor: int, flags: int) -> int:
    """The file behind a descriptor of process `pid`. Raises OSError where that process is gone, or another user's."""
    return os.open(f"/proc/{pid}/fd/{descriptor}", flags)


def is_ready(descriptor: int, timeout_s: float) -> bool:
    """Whether there is something to read, or nobody left to write it, within so many seconds."""
    watched = select.poll()
    watched.register(descriptor, select.POLLIN)
    return bool(watched.poll(timeout_s * 1e3))


def read_within(descriptor: int, most: int, timeout_s: float) -> bytes:
    """Some bytes, as soon as there are any, at most `most`.

    Raises TimeoutError where none came, BrokenPipeError where nobody is left to write.
    """
    if not is_ready(descriptor, timeout_s):
        raise TimeoutError
    content = os.read(descriptor, most)
    if not content:
        raise BrokenPipeError
    return content
