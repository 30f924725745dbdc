"""Whether the Ray that alray started here is lost: its GCS or its raylet ended, or was ended because it is silent.

Without its GCS Ray starts, ends and places nothing, and after 60 seconds Ray's C++ code ends every process that waits
for it. Without its raylet, this machine is no node any more. So alray ends such a Ray as soon as
it sees it, and then calls it no more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from alray.core.errors import StageError
from alray.runtime.local_ray.head import ANSWERING_S, end_leading_processes, ended_process, leading_answer

_LOOKING_S = 1.0

_was_silent = threading.Event()
_no_more_calls = threading.Event()
"""Set when this process calls the Ray that alray started no more: it has learned of the loss, or needs Ray no more."""


def is_lost() -> bool:
    """Whether a leading process of the Ray that alray started in this process has ended. False where there is none."""
    return ended_process() is not None


def require_not_lost() -> None:
    """Raise StageError if `is_lost`. The caller then calls this Ray no more."""
    name = ended_process()
    if name is not None:
        _no_more_calls.set()
        if _was_silent.is_set():
            raise StageError("Ray on this machine did not answer any more, and was ended")
        raise StageError(f"a process of Ray on this machine ended: {name}")


def end_if_silent() -> bool:
    """End the Ray that alray started in this process if a leading process does not answer.

    Calls that need the GCS would wait for a minute, and then raise an error or end this process; without an answer of
    the raylet, `shutdown` waits without end.

    Returns:
        Whether it `is_lost`. The caller then calls this Ray no more.
    """
    if not is_lost() and not leading_answer():
        _end()
    if is_lost():
        _no_more_calls.set()
    return is_lost()


def _end() -> None:
    if not is_lost():
        _was_silent.set()
    end_leading_processes()


@contextmanager
def told_of_loss(lost: Callable[[StageError], None]) -> Iterator[None]:
    """Call `lost` in a separate thread if `is_lost` becomes true within the block.

    It is for work that waits in calls to Ray, as Ray Tune does: an exception never reaches it.
    """
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(_LOOKING_S):
            try:
                require_not_lost()
            except StageError as error:
                lost(error)
                return

    with _thread(tell, ended):
        yield


@contextmanager
def watched(
    end_this_process: Callable[[], None], *, every_s: float = _LOOKING_S, silent_s: float = 20.0, stuck_s: float = 40.0
) -> Iterator[None]:
    """In the block, end this Ray if it is silent, and then this process if it still waits for an answer.

    Ray is silent where its GCS or its raylet does not answer. After `silent_s` of that both are ended. Whoever waits
    for Ray and looks at it then sees that it `is_lost`. If nobody has by `stuck_s`, a thread waits in Ray's C++ code,
    where no exception reaches it.

    Args:
        end_this_process: is called in a thread, at last.
        stuck_s: below the minute after which Ray's C++ code ends this process.
    """

    def watch() -> None:
        unheard_s = 0.0
        while unheard_s <= stuck_s:
            began_s = time.monotonic()
            if _no_more_calls.wait(every_s):
                return
            is_heard = leading_answer()
            # More has passed where this process was stopped too.
            passed_s = min(time.monotonic() - began_s, ANSWERING_S + 2 * every_s)
            unheard_s = 0.0 if is_heard else unheard_s + passed_s
            if unheard_s > silent_s:
                _end()
        end_this_process()

    _was_silent.clear()
    _no_more_calls.clear()
    with _thread(watch, _no_more_calls):
        yield


@contextmanager
def _thread(target: Callable[[], None], ended: threading.Event) -> Iterator[None]:
    """Run a function in a thread during the block. It returns soon after `ended` is set."""
    thread = threading.Thread(target=target, name="alray-local-ray", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
