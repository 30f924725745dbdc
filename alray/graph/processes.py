"""Ending stages' processes on this node, even if they no longer answer Ray."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psutil
import ray

from alray.graph.actor import Whereabouts

_ENDING_S = 10.0


def end_processes(places: Sequence[Whereabouts]) -> None:
    """Kill those of these processes that run on this node, and wait until they are gone.

    A stopped process (SIGSTOP) does not answer Ray, but the kill signal reaches it.
    """
    here = ray.get_runtime_context().get_node_id()
    ended = []
    for where in places:
        if where.node == here:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(where.pid)
                if process.create_time() == where.created_s:  # not another process with the same number
                    process.kill()
                    ended.append(process)
    psutil.wait_procs(ended, timeout=_ENDING_S)
