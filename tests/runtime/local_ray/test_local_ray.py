"""A Ray that a command started, and that ends or is stopped."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import ray

from alray.core.errors import RunError, StageError
from alray.runtime.cluster import room
from alray.runtime.cluster.room import wait_for_room
from alray.runtime.local_ray import start
from alray.runtime.local_ray.head import end_leading_processes, is_lost, ours, require_not_lost
from alray.runtime.local_ray.start import local_ray, was_lost

_ANSWERING = """
import socket, sys
listening = socket.socket(fileno=int(sys.argv[1]))
while True:
    listening.accept()[0].send(b"hello")
"""


class _Ray:
    """Two processes that stand for the GCS and the raylet, each with a socket where it answers, and a connection to the
    GCS."""

    def __init__(self) -> None:
        sockets = [socket.create_server(("127.0.0.1", 0), backlog=1) for _ in range(2)]
        address = sockets[0].getsockname()
        self.rays_connection = socket.create_connection(address)
        self.rays_connection.settimeout(5)
        self.accepted, _ = sockets[0].accept()
        self.addresses = [each.getsockname() for each in sockets]
        self.leading = []
        for each in sockets:
            command = [sys.executable, "-I", "-S", "-c", _ANSWERING, str(each.fileno())]
            self.leading.append(subprocess.Popen(command, pass_fds=[each.fileno()]))
            each.close()
        gcs, raylet = ([SimpleNamespace(process=process)] for process in self.leading)
        processes = {"gcs_server": gcs, "raylet": raylet}
        self.node = SimpleNamespace(all_processes=processes, gcs_address=f"127.0.0.1:{address[1]}")

    def close(self) -> None:
        for each in (self.accepted, self.rays_connection):
            each.close()
        for process in self.leading:
            process.kill()
            process.wait()

    def stop(self, index: int) -> None:
        """Stop the GCS (0) or the raylet (1)."""
        self.leading[index].send_signal(signal.SIGSTOP)
        while psutil.Process(self.leading[index].pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)

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
    monkeypatch.setattr(room, "is_idle", lambda bundles: False)
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
    assert not end_leading_processes()
    assert users.alive() == [True, True]


@pytest.mark.parametrize("index", [0, 1], ids=["GCS", "raylet"])
def test_a_ray_whose_leading_process_has_ended_is_lost(started: _Ray, index: int) -> None:
    require_not_lost()
    started.leading[index].kill()
    started.leading[index].wait()
    assert is_lost()
    with pytest.raises(StageError, match="ended: raylet" if index else "ended: gcs_server"):
        require_not_lost()


@pytest.mark.parametrize("index", [0, 1], ids=["GCS", "raylet"])
def test_a_ray_that_does_not_come_to_its_end_is_ended(
    monkeypatch: pytest.MonkeyPatch, started: _Ray, index: int
) -> None:
    """As with a GCS or a raylet that somebody has stopped: `shutdown` waits for its answer."""
    monkeypatch.setattr(ray, "init", lambda **arguments: None)
    monkeypatch.setattr(start, "_was_lost", threading.Event())
    monkeypatch.setattr(start, "_ENDING_S", 0.5)
    monkeypatch.setattr(ray, "shutdown", lambda: shut_down.append(started.rays_connection.recv(1)))
    shut_down: list[bytes] = []
    with local_ray([]):
        started.stop(index)
    assert shut_down == [b""], "Ray's threads learn that nobody is left to answer"
    assert started.alive() == [False, False]
    assert was_lost()


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
@pytest.mark.parametrize("what", ["ended soon", "ended at once", "takes too long"])
def test_a_ray_that_ends_or_takes_too_long_while_it_starts_is_one_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """Ray's C++ code would wait for its GCS for one to three minutes, and then end this process."""
    program = tmp_path / "gcs_server"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    gone = threading.Event()

    def init(**arguments: object) -> None:
        process = subprocess.Popen([program, {"ended soon": "2", "ended at once": "0"}.get(what, "100")])
        gone.wait(30)
        process.kill()
        process.wait()

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(start, "_was_lost", threading.Event())
    monkeypatch.setattr(start, "_STARTING_S", 5.0)
    said = "within 5 s" if what == "takes too long" else ": its gcs_server ended"
    try:
        with pytest.raises(RunError, match=said), local_ray([]):
            pass
        assert was_lost()
    finally:
        gone.set()
