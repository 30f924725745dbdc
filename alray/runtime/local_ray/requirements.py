"""Checks that Ray can start on this machine. Where it cannot, it crashes, hangs or leaves processes behind."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from alray.core.errors import RequestError, printable
from alray.runtime.device.machine_memory import machine_memory_bytes

_DESCRIPTORS = 128
"""File descriptors of one process. With 40 Ray's first process ends while it starts; 80 were enough for two stages."""
_ADDRESS_SPACE = 8e9
"""Bytes that a process maps besides Ray's object store: the libraries of torch and Ray, and the stacks of threads."""
RAYS_SHARE = 0.3
"""Share of the memory that Ray's object store takes by default. Every process maps all of it."""


def require_ray_can_start() -> None:
    """Raise RequestError with what Ray lacks here: names in UTF-8, file descriptors or address space."""
    for what, name in (("the current folder", str(Path.cwd())), *(("the command line", each) for each in sys.argv)):
        if printable(name) != name:
            raise RequestError(
                f"Ray cannot start: `{name}` in {what} is not UTF-8", hint="rename it, or run with --inline"
            )
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors != resource.RLIM_INFINITY and descriptors < _DESCRIPTORS:
        raise RequestError(
            f"too few file descriptors for Ray: `ulimit -n` allows {descriptors}",
            hint=f"allow at least {_DESCRIPTORS}, such as `ulimit -n 4096`, or run with --inline",
        )
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    needed = _ADDRESS_SPACE + RAYS_SHARE * machine_memory_bytes()
    if space != resource.RLIM_INFINITY and space < needed:
        raise RequestError(
            f"too little address space for Ray: `ulimit -v` allows {space // 1024:,} kB",
            hint=f"allow at least {needed / 1024:,.0f} kB, such as `ulimit -v unlimited`, or run with --inline",
        )
