"""When a GPU computed, on the clock of the host.

The host only gives a GPU its work. So the time of a computation is that between two events in the GPU's stream. It is
known when the GPU has passed them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class MeasuredAction:
    """An action that was measured: kind, name in traces, mini-batch, and whether it belongs to no mini-batch."""

    kind: str
    text: str
    step: int
    in_pause: bool


@dataclass(frozen=True)
class _ActionInterval:
    what: MeasuredAction
    began_s: float  # on the host
    ended_s: float
    events: tuple[torch.Event, torch.Event] | None  # around a computation; None while the host waited


class GpuTimes:
    """Collects measurements in order, and gives them back when the GPU has passed them.

    The host may wait for a message, or for its data, while the GPU still computes. That time counts once, as
    computing.
    """

    def __init__(self, event: Callable[[], torch.Event]) -> None:
        """
        Args:
            event: puts an event into the stream in which the stage computes.
        """
        self.event = event
        self._open: torch.Event | None = None
        self._intervals: deque[_ActionInterval] = deque()
        self._busy_until_s = 0.0
        self._anchor()

    def begin(self, *, computes: bool) -> None:
        """An action begins.

        Args:
            computes: whether the GPU does it, not the host.
        """
        self._open = self.event() if computes else None

    def end(self, what: MeasuredAction, began_s: float, ended_s: float) -> None:
        """The action that began last ends. The times are the host's, of `time.perf_counter`."""
        events = None if self._open is None else (self._open, self.event())
        self._intervals.append(_ActionInterval(what, began_s, ended_s, events))

    def passed(self, *, wait: bool) -> Iterator[tuple[MeasuredAction, float, float]]:
        """The actions that are over, with their begin and end on the host's clock.

        Args:
            wait: until all are.
        """
        while self._intervals:
            interval = self._intervals[0]
            if interval.events is None:
                began_s = max(interval.began_s, self._busy_until_s)
                ended_s = max(interval.ended_s, began_s)
            else:
                begin, end = interval.events
                if wait:
                    end.synchronize()
                elif not end.query():
                    return
                began_s, ended_s = self._on_host(begin), self._on_host(end)
                self._busy_until_s = ended_s
            self._intervals.popleft()
            yield interval.what, began_s, ended_s
        if wait:
            self._anchor()

    def _anchor(self) -> None:
        """Compare the two clocks. They drift apart, so this is done again and again, when the GPU has nothing to do."""
        self._zero = self.event()
        self._zero.synchronize()
        self._zero_s = time.perf_counter()

    def _on_host(self, event: torch.Event) -> float:
        return self._zero_s + 1e-3 * self._zero.elapsed_time(event)
