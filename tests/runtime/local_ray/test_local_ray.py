"""A Ray that a command started, and that ends or does not answer."""

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
from alray.runtime.local_ray import head, start
from alray.runtime.local_ray.head import ours
from alray.runtime.local_ray.start import local_ray, was_lost
from alray.runtime.local_ray.watch import end_if_silent, is_lost, require_not_lost, watched

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
    monkeypatch.setattr(head, "ANSWERING_S", 1.0)
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
    users.stop(0)
    with watched(lambda: None, every_s=0.05, silent_s=0.2):
        time.sleep(0.6)
    assert not end_if_silent()
    assert users.alive() == [True, True]


@pytest.mark.parametrize("what", ["well", "GCS", "raylet", "no connection"])
def test_a_ray_that_does_not_answer_is_ended_and_counts_as_lost(started: _Ray, what: str) -> None:
    """As with a GCS or a raylet that somebody has stopped: its socket still accepts connections. And where sockets lose
    what is sent."""
    if what != "well":
        started.stop(1 if what == "raylet" else 0)
    full = [socket.create_connection(started.addresses[0]) for _ in range(2)] if what == "no connection" else []
    alive = what == "well"
    assert end_if_silent() is is_lost() is not alive
    assert started.alive() == [alive, alive]
    if not alive:
        assert started.rays_connection.recv(1) == b"", "Ray's threads learn that nobody is left to answer"
        with pytest.raises(StageError, match="did not answer"):
            require_not_lost()
    for each in full:
        each.close()


@pytest.mark.few
@pytest.mark.parametrize("what", ["well", "stopped for a moment", "stopped", "killed", "nobody looks"])
def test_a_ray_that_does_not_answer_is_ended_while_others_wait_for_it(started: _Ray, what: str) -> None:
    """Whoever waits for Ray then learns that it is lost. A call to Ray may not return: then nobody learns it, and this
    process ends. A silence that is over in time does no harm."""
    ended = threading.Event()
    with watched(ended.set, every_s=0.05, silent_s=1.5, stuck_s=4.0):
        if what == "killed":
            started.leading[1].kill()
        elif what != "well":
            started.stop(0)
        if what == "stopped for a moment":
            time.sleep(0.3)
            started.leading[0].send_signal(signal.SIGCONT)
        time.sleep(3.0)
        lost = what in ("stopped", "killed", "nobody looks")
        assert is_lost() is lost
        if lost and what != "nobody looks":
            with pytest.raises(StageError, match="ended: " if what == "killed" else "did not answer"):
                require_not_lost()
        assert ended.wait(20.0 if what == "nobody looks" else 2.5) is (what == "nobody looks")


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
@pytest.mark.parametrize("what", ["ended soon", "ended at once", "does not answer", "cannot be reached"])
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
                pass_fds=[listening.fileno()] if not what.startswith("ended") else [],
            )
            # No room for a third one.
            full = range(2 if what == "cannot be reached" else 0)
            waiting = [socket.create_connection(listening.getsockname()) for _ in full]
            gone.wait(30)
            for each in waiting:
                each.close()
            process.kill()
            process.wait()

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(start, "_was_lost", threading.Event())
    monkeypatch.setattr(start, "_SILENT_S", 2.0)
    monkeypatch.setattr(head, "ANSWERING_S", 1.0)
    said = "ended" if what.startswith("ended") else "does not answer"
    try:
        with pytest.raises(RunError, match=f"its gcs_server {said}"), local_ray([]):
            pass
        assert was_lost()
    finally:
        gone.set()
