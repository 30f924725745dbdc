"""Tells how far the reading of data is. Who shows it to the user says so for a while: the data know no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_EVERY_S = 2.0
_show: Callable[[str], None] | None = None
_shown_s = 0.0


@contextmanager
def shown(show: Callable[[str], None]) -> Iterator[None]:
    """Within this block `show` gets a line about what is read, at most every two seconds, and none in the first two."""
    global _show, _shown_s
    before, _show, _shown_s = _show, show, time.monotonic()
    try:
        yield
    finally:
        _show = before


def tell(what: str, done: int, whole: int) -> None:
    """Say that this part is done, if somebody shows it and it is time.

    Args:
        done, whole: in any unit.
    """
    global _shown_s
    if _show is not None and (now := time.monotonic()) - _shown_s >= _EVERY_S:
        _shown_s = now
        _show(f"{what}: {done / max(whole, 1):.0%}")
