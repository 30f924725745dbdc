"""How busy other programs kept the machine while a study ran: whatever is not a process of the study itself."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from alray.core.counting import counted
from alray.runtime.probe.other_programs import BUSY, processor_seconds
from alray.studies.records import TrialRecord


class StudyMachine:
    """The machine of a study. It tells how many processors other programs kept busy while a trial ran.

    Where the study itself started Ray, every process of the study is a child of the process that runs it. On a cluster
    that was there before, trials run on other machines, and nothing is known.
    """

    def __init__(self) -> None:
        self._own: dict[tuple[int, float], _Process] = {}  # by number and the time of its start
        self._lost_s = 0.0  # of processes that have ended and whose parent does not have their times
        self._samples = [self._sample()]

    def other_processors(self, trial_s: float) -> float:
        """The processors that other programs kept busy, as a mean over the seconds of a trial that ends now."""
        now = self._sample()
        began = next((each for each in reversed(self._samples) if each[0] <= now[0] - trial_s), self._samples[0])
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


def taken_from(record: TrialRecord, other_processors: float, at_once: int) -> float:
    """The processors that other programs took from a trial: those that they kept busy, less those that it left free.

    Args:
        at_once: the trials that ran at the same time.
    """
    summary = record.summary
    used = 1
    if summary is not None:
        used = summary.threads * (1 if summary.engine == "inline" else summary.stages * summary.replicas)
    free = len(os.sched_getaffinity(0)) - at_once * used
    return max(0.0, other_processors - max(0, free))


def busy_warnings(records: Sequence[TrialRecord]) -> list[str]:
    """The warning that other programs took processors from trials; none where they did not."""
    disturbed = list(filter(is_disturbed, records))
    if not disturbed:
        return []
    numbers = [str(record.number) for record in disturbed]
    listed = ", ".join(numbers[:_MOST_LISTED])
    listed += f" and {len(numbers) - _MOST_LISTED} more" if len(numbers) > _MOST_LISTED else ""
    most = max(record.taken_processors or 0.0 for record in disturbed)
    return [
        f"{WAS_BUSY}: other programs took up to {most:.1f} processors from {len(numbers)} of "
        f"{counted(len(records), 'trial')} ({listed}), so their times cannot be compared."
    ]


def is_disturbed(record: TrialRecord) -> bool:
    """Whether other programs took enough processors from a trial to be told of."""
    return (record.taken_processors or 0.0) > BUSY


WAS_BUSY = "The machine was busy"
"""How the warning begins."""
_MOST_LISTED = 10
