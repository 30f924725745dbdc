"""How busy other programs keep the processors that this process may use."""

from __future__ import annotations

import os
import time

import psutil

BUSY = 0.25
"""Processors that other programs may use before alray tells of them."""
_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # Linux counts guests as user time too


class OtherPrograms:
    """Measures how busy other programs are. Other processes of this run must be quiet meanwhile."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()
        self._busy_s = processor_seconds()
        self._own_s = time.process_time()

    def processors(self) -> float:
        """The number of processors that they kept busy on average."""
        others_s = processor_seconds() - self._busy_s - (time.process_time() - self._own_s)
        return max(0.0, others_s / (time.perf_counter() - self._began_s))


def processor_seconds() -> float:
    """Seconds that the processors which this process may use have worked since the machine started."""
    every = psutil.cpu_times(percpu=True)
    own = os.sched_getaffinity(0)
    usable = [times for number, times in enumerate(every) if number in own]
    return sum(sum(times) - sum(getattr(times, name, 0.0) for name in _NOT_BUSY) for times in usable)
