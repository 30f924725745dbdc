"""The memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path


def machine_memory_bytes() -> int:
    """Physical memory of this machine, or the container's limit if that is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else "max"
    return min(physical, int(text)) if text.isdecimal() else physical
