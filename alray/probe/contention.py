"""How much slower a stage computes while others compute beside it on the same machine.

Stages share memory, caches and the processor's heat: on two virtual CPUs, two processes of one thread each lost 3 to
11 % each while both ran. A probe alone would predict every pipeline too fast by that.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

MOST_COMPANIONS = 7  # each holds torch in memory and takes seconds to start
_PAIRS = 9


class Companions:
    """Processes that compute beside this one while `working`."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def wait_until_ready(self) -> None:
        """Until all of them could begin: the time they take to start must not count."""
        for process in self._processes:
            assert process.stdout is not None
            process.stdout.readline()

    @contextmanager
    def working(self) -> Iterator[None]:
        self._tell("work")
        try:
            yield
        finally:
            self._tell("rest")

    def _tell(self, word: str) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()

    def __len__(self) -> int:
        return len(self._processes)


@contextmanager
def companions(count: int, *, threads: int, nbytes: int) -> Iterator[Companions]:
    """Start `count` of them, at most `MOST_COMPANIONS`; they end with the block.

    nbytes: of the activations they work on.
    """
    command = [sys.executable, "-m", "alray.probe.companion", str(threads), str(nbytes)]
    processes: list[subprocess.Popen[str]] = []
    try:
        for _ in range(min(count, MOST_COMPANIONS)):
            processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
            )
        yield Companions(processes)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def measure_contention(work: Callable[[], float], beside: Companions) -> float:
    """How many times longer `work` takes while all of `beside` compute; at least 1.

    work: does some work and returns the seconds it took. It is done alone and beside the others in turns, so that a
    machine that changes its pace changes both.
    """
    ratios = []
    for _ in range(_PAIRS):
        alone_s = work()
        with beside.working():
            work()  # until they have begun
            ratios.append(work() / alone_s)
    return max(1.0, median(ratios))
