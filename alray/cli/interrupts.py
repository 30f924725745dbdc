"""Ctrl-C and SIGTERM, counted for the driver of a run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE = 2
"""The number of requests that tells the driver to stop at once. A later request no longer waits for the driver."""


class Interrupts:
    """Counts requests to stop within a `with` block, and restores the earlier signal handlers after it.

    A request raises KeyboardInterrupt at once in two cases: before `count_from_now`, when no run reads the count yet,
    and from the third request on. Only for the main thread.
    """

    def __init__(self) -> None:
        self._count = 0
        self._counting = False
        self._before: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    @property
    def count(self) -> int:
        """How often the user asked to stop: 1 means after the current mini-batch, 2 means at once."""
        return self._count

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._heard) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def count_from_now(self) -> None:
        """Begin to count: from now on a driver reads the count."""
        self._counting = True

    def hold(self) -> None:
        """Install the handlers again if a library replaced them: Ray sets its own SIGTERM handler when it starts."""
        for number in _SIGNALS:
            if signal.getsignal(number) != self._heard:
                signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if not self._counting or self._count >= _AT_ONCE:
            raise KeyboardInterrupt
        self._count += 1
