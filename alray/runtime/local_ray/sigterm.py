"""SIGTERM in a process that is connected to Ray: it becomes a SIGINT for the main thread.

Ray's C++ code puts a SIGTERM handler of its own into every process that connects, which prints a stack and aborts
the process three seconds later. When the process disconnects, it sets the default action, which ends the process. What
Python had installed is lost both times. So here no handler is ever called: every thread blocks SIGTERM, and one waits
for it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_OWN = frozenset({signal.SIGTERM})


@contextmanager
def sigterm_as_sigint() -> Iterator[None]:
    """Within the block, a SIGTERM is passed on to the main thread as SIGINT, whatever Ray installs.

    It has effect in the main thread alone. All threads that begin in the block block SIGTERM, those before it do not: a
    library may have some, where a script has imported it. Processes that are forked in the block get SIGTERM as usual,
    those of Ray among them. After the block the handler of SIGTERM is the one from before it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _unblock_in_forked_processes()
    handler = signal.getsignal(signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OWN)
    ended = threading.Event()
    waiting = threading.Thread(target=_pass_on, args=(ended,), name="alray-sigterm", daemon=True)
    waiting.start()
    try:
        yield
    finally:
        try:
            ended.set()
            signal.pthread_kill(waiting.ident or 0, signal.SIGTERM)  # for this thread alone: its end
            waiting.join()
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if handler is None else handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pass_on(ended: threading.Event) -> None:
    """Wait for SIGTERM until this process itself sends one, for the end."""
    while signal.sigwaitinfo(_OWN).si_pid != os.getpid() or not ended.is_set():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@cache
def _unblock_in_forked_processes() -> None:
    """A process inherits what the thread that forks it blocks. Ray runs Python between fork and exec, so that its
    processes are reached too."""
    os.register_at_fork(after_in_child=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _OWN))
