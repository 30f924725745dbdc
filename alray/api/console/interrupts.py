"""Ctrl-C, SIGTERM and a closed terminal (SIGHUP), counted for the driver of a run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from alray.api.console.closed_output import lead_nowhere
from alray.core.errors import AlrayError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_AT_ONCE = 2
"""The number of requests that tells the driver to stop at once. A later request no longer waits for the driver."""


class Interrupts:
    """Counts requests to stop within a `with` block, and restores the earlier signal handlers after it.

    A request raises KeyboardInterrupt at once in three cases: before `count_from_now`, when no run reads the count yet;
    from the third request on; and from the one that stops at once while a callback runs, which may hang. A library that
    catches it does not lose it: `count_from_now` raises it again. SIGHUP is left alone where it is ignored, as under
    `nohup`. Only for the main thread.
    """

    asked_at_once = False
    """Whether a run of this process was asked to stop at once."""
    reason = "on request"
    error: AlrayError | None = None

    def __init__(self) -> None:
        self._count = 0
        self._counting = False
        self._raised = False
        self._raises_at = _AT_ONCE + 1
        self._before: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    @property
    def count(self) -> int:
        """How often the user asked to stop: 1 means after the current mini-batch, 2 means at once."""
        return self._count

    def __enter__(self) -> Interrupts:
        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        heard = [number for number in _SIGNALS if not (nohup and number is signal.SIGHUP)]
        self._before = {number: signal.signal(number, self._heard) for number in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def count_from_now(self) -> None:
        """Begin to count: from now on a driver reads the count.

        Raises KeyboardInterrupt if there was a request before, whose KeyboardInterrupt did not end the command.
        """
        self._counting = True
        if self._raised:
            raise KeyboardInterrupt

    @contextmanager
    def of_callback(self, *, asked_before: bool) -> Iterator[None]:
        """Around code of the user that the driver waits for: the request that stops at once raises KeyboardInterrupt.

        Args:
            asked_before: whether a callback has asked to stop, so that this is the first one of the user.
        """
        before, self._raises_at = self._raises_at, _AT_ONCE - asked_before
        try:
            yield
        finally:
            self._raises_at = before

    def hold(self) -> None:
        """Install the handlers again: a library may have replaced them, also without Python's knowledge."""
        for number in self._before:
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            leave_closed_terminal()
        if not self._counting or self._count >= _AT_ONCE:
            self._raised = True
            raise KeyboardInterrupt
        self._count += 1
        Interrupts.asked_at_once = self._count >= _AT_ONCE
        if self._count >= self._raises_at:
            raise KeyboardInterrupt


def leave_closed_terminal() -> None:
    """Lead every file descriptor of a closed terminal to /dev/null: writing to the terminal would raise an OSError."""
    for entry in Path("/proc/self/fd").iterdir():
        number = int(entry.name)
        try:
            of_terminal = str(entry.readlink()).startswith(("/dev/pts/", "/dev/tty"))
        except FileNotFoundError:  # the one that listed this folder
            continue
        if of_terminal and not os.isatty(number):
            lead_nowhere(number)
