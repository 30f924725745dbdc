"""What has the random generators and the settings of this process for itself: one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_INSIDE = threading.Lock()
_NEXT = threading.Lock()  # who holds it comes in next, before a thread that goes out and in again
_OTHERS = threading.Lock()  # of the others, one at a time wants to be next: a run waits for one, however many there are
_of_thread = threading.local()


def is_inside() -> bool:
    """Whether the calling thread is within `one_at_a_time`."""
    return getattr(_of_thread, "inside", False)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Inside, no other thread of this process is within this function. A thread that is already inside goes on."""
    if is_inside():
        yield
        return
    with _OTHERS:
        _come_in()
    try:
        yield
    finally:
        _go_out()


@contextmanager
def others_let_in() -> Iterator[None]:
    """Within `one_at_a_time`: while this context lasts, other threads may come in, and leave all as they found it."""
    _go_out()
    try:
        yield
    finally:
        _come_in()


def _come_in() -> None:
    with _NEXT:
        _INSIDE.acquire()
    _of_thread.inside = True


def _go_out() -> None:
    _of_thread.inside = False
    _INSIDE.release()
