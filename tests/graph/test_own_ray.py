"""A Ray of alray's own that is still there and does not answer."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
import ray
from ray.exceptions import RpcError

from alray.graph.own_ray import end_if_silent, is_lost


@pytest.mark.parametrize("answers", [True, False])
def test_a_ray_that_does_not_answer_is_ended_and_counts_as_lost(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    """As with a GCS that is stopped, or where sockets lose what is sent."""

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
    try:
        end_if_silent()
        assert is_lost() is not answers
        assert [process.poll() is None for process in leading] == [answers, answers]
    finally:
        for process in leading:
            process.kill()
            process.wait()
