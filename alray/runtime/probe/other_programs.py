"""How busy other programs keep the processors that this process may use."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

import psutil

BUSY = 0.25
"""Processors that other programs may take before alray tells of them."""
_NOT_BUSY = ("idle", "iowait", "guest", "guest_nice")  # Linux counts guests as user time too


class Machine:
    """This machine. It tells how many processors other programs kept busy: all but this process and those below it.

    Where alray started Ray, the processes of all stages and trials are below this one. On a cluster that was there
    before they run on other machines, and nothing is known.
    """

    def __init__(self) -> None:
        self._own: dict[tuple[int, float], _Process] = {}  # by number and the time of its start
        self._lost_s = 0.0  # of processes that have ended and whose parent does not have their times
        self._samples = [self._sample()]

    def other_processors(self, last_s: float = math.inf) -> float:
        """The processors that other programs kept busy, as a mean over the last seconds; over all since this object was
        made, if there are no more."""
        now = self._sample()
        began = next((each for each in reversed(self._samples) if each[0] <= now[0] - last_s), self._samples[0])
        self._samples.append(now)
        elapsed_s = now[0] - began[0]
        return max(0.0, (now[1] - began[1]) / elapsed_s) if elapsed_s > 0 else 0.0

    def _sample(self) -> tuple[float, float]:
        """Now, and the seconds that the processors worked for others until now."""
        before, self._own = self._own, _own_processes()
        ended_s: dict[tuple[int, float], float] = {}  # by the parent
        for key, process in before.items():
            if key not in self._own:
                ended_s[process.parent] = ended_s.get(process.parent, 0.0) + process.own_s + process.of_ended_s
        for parent, seconds in ended_s.items():
            # Who waits for a child has its times. Ray's raylet lets the system do it.
            waited_s = self._own[parent].of_ended_s - before[parent].of_ended_s if parent in self._own else 0.0
            self._lost_s += max(0.0, seconds - waited_s)
        own_s = sum(process.own_s + process.of_ended_s for process in self._own.values())
        return time.monotonic(), processor_seconds() - own_s - self._lost_s


class _Process(NamedTuple):
    """Seconds of the processors that a process took itself, and those of its children that it waited for."""

    parent: tuple[int, float]
    own_s: float
    of_ended_s: float


def _own_processes() -> dict[tuple[int, float], _Process]:
    """This process and all below it, by number and the time of their start."""
    found: dict[tuple[int, float], _Process] = {}
    me = psutil.Process()
    above = {me.pid: (me.pid, me.create_time())}
    for process in (me, *me.children(recursive=True)):
        try:
            times, key = process.cpu_times(), (process.pid, process.create_time())
            parent = above.get(process.ppid(), above[me.pid])
        except psutil.Error:  # it has just ended
            continue
        above[process.pid] = key
        found[key] = _Process(parent, times.user + times.system, times.children_user + times.children_system)
    return found


def taken(other_processors: float, used: int) -> float:
    """The processors that other programs took from a run: those that they kept busy, less those that it left free.

    Args:
        used: the processors that the run uses at the same time.
    """
    free = len(os.sched_getaffinity(0)) - used
    return max(0.0, other_processors - max(0, free))


def measured_beside(taken_processors: float) -> Iterator[str]:
    """Yield what to say of times predicted from components that were measured beside other programs, unless these took
    next to nothing."""
    if taken_processors > BUSY:
        yield (
            f"other programs took {taken_processors:.1f} processors while the components were measured, so the "
            "predicted times may be wrong"
        )


def trained_beside(taken_processors: float) -> Iterator[str]:
    """The same of times measured in training."""
    if taken_processors > BUSY:
        yield f"other programs took {taken_processors:.1f} processors from this run, so its times cannot be compared"


def processor_seconds() -> float:
    """Seconds that the processors which this process may use have worked since the machine started."""
    every = psutil.cpu_times(percpu=True)
    own = os.sched_getaffinity(0)
    usable = [times for number, times in enumerate(every) if number in own]
    return sum(sum(times) - sum(getattr(times, name, 0.0) for name in _NOT_BUSY) for times in usable)
