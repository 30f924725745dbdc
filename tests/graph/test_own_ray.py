"""A Ray of alray's own that is still there and does not answer."""

from __future__ import annotations

import signal
import subprocess
import time
from types import SimpleNamespace

import psutil
import pytest
import ray
from ray.exceptions import RpcError

from alray.graph.own_ray import end_if_silent, is_lost


@pytest.mark.parametrize(("answers", "stopped"), [(True, False), (False, False), (True, True)])
def test_a_ray_that_does_not_answer_is_ended_and_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch, answers: bool, stopped: bool
) -> None:
    """As with a GCS that is stopped, or where sockets lose what is sent; and with a raylet that is stopped, for which
    the GCS still answers."""

    def ask(key: bytes, namespace: None, timeout: float) -> bool:
        if not answers:
            raise RpcError("Deadline Exceeded")
        return False

    leading = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    gcs, raylet = ([SimpleNamespace(process=process)] for process in leading)
    processes = {"gcs_server": gcs, "raylet": raylet}
    monkeypatch.setattr(ray._private.worker, "_global_node", SimpleNamespace(all_processes=processes))
    client = SimpleNamespace(internal_kv_exists=ask)
    monkeypatch.setattr(ray._private.worker, "global_worker", SimpleNamespace(gcs_client=client))
    alive = answers and not stopped
    try:
        if stopped:
            leading[1].send_signal(signal.SIGSTOP)
            while psutil.Process(leading[1].pid).status() != psutil.STATUS_STOPPED:
                time.sleep(0.01)
        end_if_silent()
        assert is_lost() is not alive
        assert [process.poll() is None for process in leading] == [alive, alive]
    finally:
        for process in leading:
            process.kill()
            process.wait()
