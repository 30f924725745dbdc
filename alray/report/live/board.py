"""The updates of open pages, as server-sent events. Each page gets the pieces that changed since its last update.

Source of the format: WHATWG HTML, section 9.2, Server-sent events.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from threading import Condition, Event

_STILL_HERE_S = 15.0
"""So often a page that hears of nothing new is told so: what cannot be sent shows that the page is gone."""


class Board:
    """The latest pieces of a page, which one thread writes and the threads of all open pages read."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._pieces: dict[str, str] = {}
        self._end: str | None = None
        self._readers = 0
        self.wake = Event()
        """Set when a page is opened, or when there is something else to do at once."""

    @property
    def has_readers(self) -> bool:
        return self._readers > 0

    def show(self, pieces: dict[str, str]) -> None:
        """From now on, pages show these pieces."""
        with self._changed:
            self._pieces = pieces
            self._changed.notify_all()

    def end(self, timeout_s: float, **values: str | None) -> None:
        """Tell all pages that nothing more comes, and wait until they have heard it.

        Args:
            values: for live.js.
        """
        with self._changed:
            self._end = json.dumps(values)
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._readers, timeout_s)

    def events(self) -> Generator[bytes]:
        """Yield the events for one page, from its opening to the end."""
        with self._changed:
            self._readers += 1
        self.wake.set()
        try:
            yield from self._events()
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    def _events(self) -> Generator[bytes]:
        sent: dict[str, str] = {}
        end = None
        while end is None:
            with self._changed:
                if self._end is None and self._pieces is sent:
                    self._changed.wait(_STILL_HERE_S)
                pieces, end = self._pieces, self._end
            changed = [f"{json.dumps(name)}:{piece}" for name, piece in pieces.items() if sent.get(name) != piece]
            if changed:
                yield _event("pieces", "{" + ",".join(changed) + "}")
            elif end is None:
                yield b": still here\n\n"
            sent = pieces
        yield _event("end", end)


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()
