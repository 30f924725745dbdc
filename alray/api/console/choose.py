"""The way to show a run on a stream."""

from __future__ import annotations

from typing import TextIO

from alray.api.console.closed_output import lasting
from alray.api.console.display import Display, PlainLines
from alray.api.console.interrupts import Interrupts


def terminal_display(stream: TextIO, interrupts: Interrupts, began_s: float | None = None) -> Display:
    """The display for a terminal, or for a file or a pipe.

    Args:
        began_s: as for `Display`.
    """
    stream = lasting(stream)
    if stream.isatty():
        from alray.api.console.live import LiveDisplay  # with it comes rich

        return LiveDisplay(stream, interrupts, began_s)
    return PlainLines(stream, interrupts, began_s)
