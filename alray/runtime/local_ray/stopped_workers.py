"""Workers of a Ray that somebody has stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from alray.core.stopped import STOPPED_S, Stopped
from alray.data.worker_names import OWNER

_LOOKING_S = 3.0


class StoppedWorkers:
    """Ends workers of this command's Ray that have been stopped (SIGSTOP) for a while. Ray would wait for them
    without end. It starts such a worker again, or reports its end, as of any worker that ends."""

    def __init__(self, note: Callable[[str], None], after_s: float = STOPPED_S) -> None:
        """
        Args:
            note: is told of each worker that was ended.
        """
        self._note = note
        self._after_s = after_s
        self._look_s = 0.0
        self._stopped = Stopped(after_s)

    def look(self) -> None:
        """End those that are due. Call this often: it looks every few seconds."""
        owner, now_s = os.environ.get(OWNER), time.monotonic()
        if owner is None or now_s < self._look_s:
            return
        self._look_s = now_s + min(_LOOKING_S, self._after_s / 2)
        for process in self._stopped.end_due(_stopped(owner)):
            self._note(f"process {process} of Ray was stopped for {self._after_s:.0f} s and has been ended")


def _stopped(owner: str) -> list[psutil.Process]:
    """The workers of the Ray of `owner` that are stopped. Ray's services are not among them."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.status() == psutil.STATUS_STOPPED and process.environ().get(OWNER) == owner:
                command = process.cmdline()
                if command and (command[0].startswith("ray::") or any("default_worker" in part for part in command)):
                    found.append(process)
    return found
