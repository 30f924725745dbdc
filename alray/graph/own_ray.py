"""The processes of a Ray that alray started: whether they still lead it, and their end where they do not.

Without its first process, the GCS, Ray starts, ends and places nothing, and after 60 seconds Ray ends every process that
waits for it, this one too. Without its raylet, this machine is no node any more. So alray ends such a Ray itself, as soon
as it sees it.
"""

from __future__ import annotations

from contextlib import suppress

import psutil
import ray

from alray.errors import StageError

_LEADING = ("gcs_server", "raylet")
_ENDING_S = 10.0


def is_lost() -> bool:
    """Whether a leading process of the Ray that this process started has ended. False where it started none."""
    return _ended() is not None


def require_not_lost() -> None:
    """Raise StageError if `is_lost`."""
    ended = _ended()
    if ended is not None:
        raise StageError(f"a process of Ray on this machine ended: {ended}")


def _ended() -> str | None:
    """The leading process that has ended; None if there is none."""
    node = ray._private.worker._global_node
    if node is None:
        return None
    for name in _LEADING:
        if any(info.process.poll() is not None for info in node.all_processes.get(name, ())):
            return name
    return None


def end_lost() -> None:
    """Kill all processes of a Ray that is lost, the stages' among them. Nothing is done while it is not."""
    if not is_lost():
        return
    processes = []
    for infos in ray._private.worker._global_node.all_processes.values():
        for info in infos:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(info.process.pid)
                processes += [*process.children(recursive=True), process]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=_ENDING_S)
