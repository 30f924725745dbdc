"""A Ray that a command started, and that ends or does not answer."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import ray
from ray.exceptions import RpcError

from alray.core.errors import RunError, StageError
from alray.runtime.cluster import room
from alray.runtime.cluster.room import wait_for_room
from alray.runtime.local_ray import head, start
from alray.runtime.local_ray.head import ours
from alray.runtime.local_ray.start import local_ray, was_lost
from alray.runtime.local_ray.watch import end_if_silent, is_lost, require_not_lost, watched


class _Ray:
    """Two processes that stand for the GCS and the raylet, a socket where the GCS listens, and a connection to it."""

    def __init__(self) -> None:
        self.gcs_socket = socket.create_server(("127.0.0.1", 0))
        address = self.gcs_socket.getsockname()
        self.rays_connection = socket.create_connection(address)
        self.rays_connection.settimeout(5)
        self.accepted, _ = self.gcs_socket.accept()
        self.leading = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
        gcs, raylet = ([SimpleNamespace(process=process)] for process in self.leading)
        processes = {"gcs_server": gcs, "raylet": raylet}
        self.node = SimpleNamespace(all_processes=processes, gcs_address=f"127.0.0.1:{address[1]}")

    def close(self) -> None:
        for each in (self.gcs_socket, self.accepted, self.rays_connection):
            each.close()
        for process in self.leading:
            process.kill()
            process.wait()

    def alive(self) -> list[bool]:
        return [process.poll() is None for process in self.leading]


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Ray]:
    """A Ray that the user's program seems to have started in this process."""
    made = _Ray()
    monkeypatch.setattr(ray._private.worker, "_global_node", made.node)
    yield made
    made.close()


@pytest.fixture
def started(users: _Ray) -> Iterator[_Ray]:
    """A Ray that alray seems to have started in this process."""
    with ours():
        yield users


@pytest.fixture
def an_hour(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Looks for room for an hour, a minute each, and then finds it."""
    clock_s = 0.0

    def look() -> bool:
        nonlocal clock_s
        clock_s += 60
        return clock_s > 3600

    monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=lambda: clock_s))
    monkeypatch.setattr(room, "has_room", lambda bundles, labels: True)
    return look


def test_a_ray_of_our_own_without_room_is_ended(started: _Ray, an_hour: Callable[[], bool]) -> None:
    """Nobody else uses it: it has missed that what ran there before has ended."""
    with pytest.raises(StageError, match="nobody else uses it"):
        wait_for_room(an_hour, [{"CPU": 1.0}], None, lambda line: None, whose="replicas")
    assert started.alive() == [False, False]


def test_a_ray_of_the_users_program_is_never_ended(users: _Ray, an_hour: Callable[[], bool]) -> None:
    """Its tasks may hold the processors for hours, and its actors live there."""
    notes: list[str] = []
    wait_for_room(an_hour, [{"CPU": 1.0}], None, notes.append, whose="stages")
    assert len(notes) == 1 and "others use the cluster" in notes[0]
    users.gcs_socket.close()
    with watched(lambda: None, every_s=0.05, silent_s=0.2):
        time.sleep(0.6)
    assert not end_if_silent()
    assert users.alive() == [True, True]


@pytest.mark.parametrize("what", ["well", "no answer", "no connection", "stopped"])
def test_a_ray_that_does_not_answer_is_ended_and_counts_as_lost(
    monkeypatch: pytest.MonkeyPatch, started: _Ray, what: str
) -> None:
    """As with a GCS that is stopped, or where sockets lose what is sent; where the network is gone; and with a raylet
    that is stopped, for which the GCS still answers."""

    def ask(key: bytes, namespace: None, timeout: float) -> bool:
        if what == "no answer":
            raise RpcError("Deadline Exceeded")
        return False

    client = SimpleNamespace(internal_kv_exists=ask)
    monkeypatch.setattr(ray._private.worker, "global_worker", SimpleNamespace(gcs_client=client))
    if what == "no connection":
        started.gcs_socket.close()
    if what == "stopped":
        started.leading[1].send_signal(signal.SIGSTOP)
        while psutil.Process(started.leading[1].pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
    alive = what == "well"
    assert end_if_silent() is is_lost() is not alive
    assert started.alive() == [alive, alive]
    if not alive:
        assert started.rays_connection.recv(1) == b"", "Ray's threads learn that nobody is left to answer"


@pytest.mark.few
@pytest.mark.parametrize("what", ["well", "a short loss", "no connection", "stopped", "nobody looks"])
def test_a_ray_without_a_network_is_ended_while_others_wait_for_it(started: _Ray, what: str) -> None:
    """Whoever waits for Ray then learns that it is lost. A call to Ray may not return: then nobody learns it, and this
    process ends. A loss that is over in time does no harm."""
    ended = threading.Event()
    with watched(ended.set, every_s=0.05, silent_s=1.0, stuck_s=3.0):
        address = started.gcs_socket.getsockname()
        if what == "stopped":  # its socket still accepts connections
            started.leading[0].send_signal(signal.SIGSTOP)
        elif what != "well":
            started.gcs_socket.close()
        if what == "a short loss":
            time.sleep(0.3)
            started.gcs_socket = socket.create_server(address)
        time.sleep(1.7)
        lost = what in ("no connection", "stopped", "nobody looks")
        assert is_lost() is lost
        if lost and what != "nobody looks":
            with pytest.raises(StageError, match="ended: gcs_server"):
                require_not_lost()
        assert ended.wait(20.0 if what == "nobody looks" else 2.0) is (what == "nobody looks")


def test_what_is_left_of_a_ray_is_ended_before_it_is_shut_down(monkeypatch: pytest.MonkeyPatch, started: _Ray) -> None:
    """Its raylet was killed. Without a network, `shutdown` would wait two minutes for the GCS."""
    monkeypatch.setattr(ray, "init", lambda **arguments: None)
    monkeypatch.setattr(start, "_was_lost", threading.Event())
    monkeypatch.setattr(ray, "shutdown", lambda: shut_down.append(started.rays_connection.recv(1)))
    shut_down: list[bytes] = []
    with local_ray([]):
        started.leading[1].kill()
        started.leading[1].wait()
    assert shut_down == [b""], "Ray's threads learn that nobody is left to answer"
    assert started.alive() == [False, False]
    assert was_lost()


@pytest.mark.few
@pytest.mark.parametrize("what", ["ended soon", "ended at once", "was stopped", "cannot be reached"])
def test_a_ray_that_ends_or_is_silent_while_it_starts_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """Ray's C++ code would wait for its GCS for one to three minutes, and then end this process."""
    program = tmp_path / "gcs_server"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    gone = threading.Event()

    def init(**arguments: object) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=1) as listening:
            process = subprocess.Popen(
                [program, {"ended soon": "2", "ended at once": "0"}.get(what, "100")],
                pass_fds=[listening.fileno()] if what == "cannot be reached" else [],
            )
            if what == "was stopped":
                process.send_signal(signal.SIGSTOP)
            waiting = [socket.create_connection(listening.getsockname()) for _ in range(2)]  # no room for a third one
            gone.wait(30)
            for each in waiting:
                each.close()
            process.kill()
            process.wait()

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(start, "_was_lost", threading.Event())
    monkeypatch.setattr(start, "_SILENT_S", 2.0)
    monkeypatch.setattr(head, "ANSWERING_S", 1.0)
    said = "ended" if what.startswith("ended") else what
    try:
        with pytest.raises(RunError, match=f"its gcs_server {said}"), local_ray([]):
            pass
        assert was_lost()
    finally:
        gone.set()
