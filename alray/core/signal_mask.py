"""Signals that a thread does not take for a while."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def blocked(*signals: signal.Signals) -> Iterator[None]:
    """Block these signals in this thread, and for good in the threads and processes that it begins in the block.

    One that arrives meanwhile is taken after the block.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
