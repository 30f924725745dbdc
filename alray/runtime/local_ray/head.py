"""The GCS and the raylet of the Ray that alray started in this process: whether they run, and their end.

Without its GCS Ray starts, ends and places nothing, and after 60 seconds Ray's C++ code ends every process that waits
for it. Without its raylet, this machine is no node any more. So whoever waits for Ray looks whether both run.

A Ray that the user's program started in this process is none of alray's: here it counts as none.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from alray.core.errors import StageError

_LEADING = ("gcs_server", "raylet")
_LOOKING_S = 1.0

_is_ours = threading.Event()


@contextmanager
def ours() -> Iterator[None]:
    """Within the block, a Ray that this process starts is alray's."""
    _is_ours.set()
    try:
        yield
    finally:
        _is_ours.clear()


def leading_processes() -> list[tuple[str, subprocess.Popen[bytes]]]:
    """The GCS and the raylet of the Ray that alray started in this process, with their names; none before they have
    started."""
    from alray.core.compat import ray_worker

    node = ray_worker._global_node if _is_ours.is_set() else None  # also None before it has started and after its end
    return [(name, info.process) for name in _LEADING for info in node.all_processes.get(name, ())] if node else []


def ended_process() -> str | None:
    """The leading process that has ended; None if there is none."""
    return next((name for name, process in leading_processes() if process.poll() is not None), None)


def is_lost() -> bool:
    """Whether a leading process of the Ray that alray started in this process has ended. False where there is none."""
    return ended_process() is not None


def require_not_lost() -> None:
    """Raise StageError if `is_lost`. The caller then calls this Ray no more."""
    name = ended_process()
    if name is not None:
        raise StageError(f"a process of Ray on this machine ended: {name}")


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

    thread = threading.Thread(target=tell, name="alray-local-ray", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def end_leading_processes() -> bool:
    """End both. False if alray started none in this process."""
    leading = leading_processes()
    for _, process in leading:
        process.kill()
        process.wait()
    return bool(leading)
