"""How busy other programs kept the machine while a study ran: whatever is not a process of the study itself."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

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
        self._samples = [_sample()]

    def other_processors(self, trial_s: float) -> float:
        """The processors that other programs kept busy, as a mean over the seconds of a trial that ends now."""
        now = _sample()
        began = next((each for each in reversed(self._samples) if each[0] <= now[0] - trial_s), self._samples[0])
        self._samples.append(now)
        elapsed_s = now[0] - began[0]
        return max(0.0, (now[1] - began[1]) / elapsed_s) if elapsed_s > 0 else 0.0


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


def _sample() -> tuple[float, float]:
    """Now, and the seconds that the processors worked for others until now."""
    own_s = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended: its parent has its times
            continue
        own_s += times.user + times.system + times.children_user + times.children_system
    return time.monotonic(), processor_seconds() - own_s
