"""Ctrl-C and SIGTERM as a count that the driver of a run reads."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE = 2
"""The request that asks the driver to stop at once; those after it no longer wait for the driver."""


class Interrupts:
    """Requests to stop, counted while the block lasts; the handlers that were there come back after it.

    Until `count_from_now`, when there is no run yet to hear of it, and from the third request on, a request raises
    KeyboardInterrupt where the program happens to be. To be used in the main thread.
    """

    def __init__(self) -> None:
        self._count = 0
        self._counting = False
        self._before: dict[signal.Signals, Callable[..., Any] | int | None] = {}

    @property
    def count(self) -> int:
        """How often the user asked to stop: 1 after the mini-batch, 2 now."""
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
        """From here on there is a driver that reads the count."""
        self._counting = True

    def hold(self) -> None:
        """Take the signals back where a library took them: Ray puts a handler of its own on SIGTERM when it starts."""
        for number in _SIGNALS:
            if signal.getsignal(number) != self._heard:
                signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if not self._counting or self._count >= _AT_ONCE:
            raise KeyboardInterrupt
        self._count += 1
