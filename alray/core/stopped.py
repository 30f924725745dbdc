"""Processes that somebody has stopped (SIGSTOP): who waits for one of them would wait without end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Event, Thread

import psutil

STOPPED_S = 15.0
"""Seconds that a process may be stopped. A run gives a silent stage as long, at least."""
_LOOKING_S = 3.0


class Stopped:
    """Ends processes that have been stopped for a while."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since_s: dict[psutil.Process, float] = {}
        """When each of them was first seen stopped."""

    def end_due(self, stopped: Iterable[psutil.Process]) -> list[int]:
        """End those that were seen stopped for long enough, and return their numbers.

        Args:
            stopped: the processes that are stopped now.
        """
        now_s = time.monotonic()
        self._since_s = {process: self._since_s.get(process, now_s) for process in stopped}
        ended = []
        for process, since_s in self._since_s.items():
            if now_s - since_s >= self._after_s:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
                    ended.append(process.pid)
        return ended


class StoppedWatch:
    """A thread that ends processes of this one that have been stopped for a while. It ends with them, or in `close`.

    ended: the numbers of those that it ended.
    """

    def __init__(self, processes: Sequence[int], after_s: float = STOPPED_S) -> None:
        self.ended: list[int] = []
        self._left = [psutil.Process(process) for process in processes]
        self._after_s = after_s
        self._closed = Event()
        Thread(target=self._look, name="alray-stopped", daemon=True).start()

    def close(self) -> None:
        """Look no further."""
        self._closed.set()

    def _look(self) -> None:
        found = Stopped(self._after_s)
        while self._left and not self._closed.wait(min(_LOOKING_S, self._after_s / 2)):
            statuses = {process: status_of(process) for process in self._left}
            self._left = [process for process, status in statuses.items() if status != psutil.STATUS_ZOMBIE]
            stopped = [process for process, status in statuses.items() if status == psutil.STATUS_STOPPED]
            self.ended += found.end_due(stopped)


def status_of(process: psutil.Process) -> str:
    """A status of psutil; that of a zombie where the process is gone."""
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE
