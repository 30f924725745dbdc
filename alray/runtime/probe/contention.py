"""Measures how much slower a stage computes while other stages compute on the same machine, and how unevenly.

Stages share memory, caches and the processor's power budget. On two virtual CPUs, two processes of one thread each were
3 to 11 % slower while both ran. Without this factor, every pipeline would be predicted that much too fast.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from statistics import NormalDist, mean, median

MOST_COMPANIONS = 7
MOST_BYTES = 64 << 20  # more than the caches hold
_PAIRS = 5
_STARTING_S = 0.01  # until all companions compute: a process that is woken starts when its waker sleeps
_OF_TWO = NormalDist().inv_cdf(0.75) * math.sqrt(2.0)  # how much two normal numbers differ, in standard deviations
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # which of them NumPy's matrix products read


class Companions:
    """Processes that compute at the same time as this one, inside `working`."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def wait_until_ready(self) -> None:
        """Wait until all of them can start, so that their start-up is not measured."""
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.readline()

    def work_on(self, nbytes: int) -> None:
        """From now on each of them works on so much memory, at most `MOST_BYTES`."""
        self._tell(f"size {min(nbytes, MOST_BYTES)}")

    @contextmanager
    def working(self) -> Iterator[None]:
        self._tell("work")
        try:
            yield
        finally:
            self._tell("rest")

    def _tell(self, command: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{command}\n")
            process.stdin.flush()

    def __len__(self) -> int:
        return len(self._processes)


@contextmanager
def companions(count: int, *, threads: int) -> Iterator[Companions]:
    """Start `count` companions, at most `MOST_COMPANIONS`; they end when the block is left."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("companion.py"))]
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
    processes: list[subprocess.Popen[str]] = []
    try:
        for _ in range(min(count, MOST_COMPANIONS)):
            processes.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env=environment,
                )
            )
        yield Companions(processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def measure_contention(work: Callable[[], list[tuple[float, float]]], others: Companions) -> tuple[float, float]:
    """How much slower work is while all of `others` compute, and how uneven: `contention` and `jitter_s` of `Costs`.

    Args:
        work: does some work at least twice, and returns the seconds of each, and those of processors. It runs alone and
            next to the others in alternation, so that a machine that changes its speed affects both.
    """
    ratios: list[float] = []
    walls: list[list[float]] = []
    for _ in range(_PAIRS):
        alone_s = mean(busy_s for _, busy_s in work())
        with others.working():
            time.sleep(_STARTING_S)
            beside = work()
        ratios.append(mean(busy_s for _, busy_s in beside) / alone_s)
        walls.append([wall_s for wall_s, _ in beside])
    return max(1.0, median(ratios)), _jitter_s(walls)


def _jitter_s(walls: Sequence[Sequence[float]]) -> float:
    """The variance of a time over the time, from times in blocks.

    The standard deviation follows from how much neighbours in a block differ, by the median, as for a normal
    distribution. So neither a machine that changes its speed from block to block counts, nor an interruption.
    """
    differences = [abs(after - before) for block in walls for before, after in pairwise(block)]
    deviation_s = median(differences) / _OF_TWO
    return deviation_s**2 / mean(chain.from_iterable(walls))
