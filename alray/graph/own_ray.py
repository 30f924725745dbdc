"""The processes of a Ray that alray started: whether they still lead it, and their end where they do not.

Without its first process, the GCS, Ray starts, ends and places nothing. Every process that waits for it is ended by Ray
after 60 seconds, this one too. So alray ends that Ray itself, as soon as it sees it.
"""

from __future__ import annotations

from contextlib import suppress

import psutil
import ray

from alray.errors import StageError

_GCS = "gcs_server"
_ENDING_S = 10.0


def is_lost() -> bool:
    """Whether the GCS of the Ray that this process started has ended. False where it started none."""
    node = ray._private.worker._global_node
    if node is None:
        return False
    return any(info.process.poll() is not None for info in node.all_processes.get(_GCS, ()))


def require_not_lost() -> None:
    """Raise StageError if `is_lost`."""
    if is_lost():
        raise StageError(f"Ray's first process ({_GCS}) on this machine ended")


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
