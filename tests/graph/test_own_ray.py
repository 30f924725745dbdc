"""A Ray of alray's own that is still there and does not answer."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import ray
from ray.exceptions import RpcError

from alray.errors import RunError
from alray.graph import own_ray
from alray.graph.own_ray import end_if_silent, is_lost, was_lost


@pytest.mark.parametrize("what", ["well", "no answer", "no connection", "stopped"])
def test_a_ray_that_does_not_answer_is_ended_and_counts_as_lost(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """As with a GCS that is stopped, or where sockets lose what is sent; where the network is gone; and with a raylet
    that is stopped, for which the GCS still answers."""

    def ask(key: bytes, namespace: None, timeout: float) -> bool:
        if what == "no answer":
            raise RpcError("Deadline Exceeded")
        return False

    gcs_socket = socket.create_server(("127.0.0.1", 0))
    address = gcs_socket.getsockname()
    rays_connection = socket.create_connection(address)
    rays_connection.settimeout(5)
    accepted, _ = gcs_socket.accept()
    if what == "no connection":
        gcs_socket.close()
    leading = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    gcs, raylet = ([SimpleNamespace(process=process)] for process in leading)
    processes = {"gcs_server": gcs, "raylet": raylet}
    monkeypatch.setattr(
        ray._private.worker,
        "_global_node",
        SimpleNamespace(all_processes=processes, gcs_address=f"127.0.0.1:{address[1]}"),
    )
    client = SimpleNamespace(internal_kv_exists=ask)
    monkeypatch.setattr(ray._private.worker, "global_worker", SimpleNamespace(gcs_client=client))
    alive = what == "well"
    try:
        if what == "stopped":
            leading[1].send_signal(signal.SIGSTOP)
            while psutil.Process(leading[1].pid).status() != psutil.STATUS_STOPPED:
                time.sleep(0.01)
        end_if_silent()
        assert is_lost() is not alive
        assert [process.poll() is None for process in leading] == [alive, alive]
        if not alive:
            assert rays_connection.recv(1) == b"", "Ray's threads learn that nobody is left to answer"
    finally:
        for each in (gcs_socket, accepted, rays_connection):
            each.close()
        for process in leading:
            process.kill()
            process.wait()


@pytest.mark.parametrize("ends", ["soon", "at once"])
def test_a_ray_that_ends_while_it_starts_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: str
) -> None:
    """Ray's C++ code would wait for its GCS for a minute, and then end this process."""
    program = tmp_path / "gcs_server"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    gone = threading.Event()

    def init(**arguments: object) -> None:
        process = subprocess.Popen([program, "2" if ends == "soon" else "0"])
        gone.wait(30)
        process.wait()

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(own_ray, "_lost", [])
    try:
        with pytest.raises(RunError, match="its gcs_server ended"), own_ray.own_ray([]):
            pass
        assert was_lost()
    finally:
        gone.set()
