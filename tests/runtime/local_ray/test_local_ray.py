"""A Ray that a command started, and that ends or is stopped."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
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


class _Ray:
    """Two processes that stand for the GCS and the raylet."""

    def __init__(self) -> None:
        self.leading = [subprocess.Popen([shutil.which("sleep") or "/bin/sleep", "100"]) for _ in range(2)]
        gcs, raylet = ([SimpleNamespace(process=process)] for process in self.leading)
        self.node = SimpleNamespace(all_processes={"gcs_server": gcs, "raylet": raylet})

    def close(self) -> None:
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
    monkeypatch.setattr(ray, "shutdown", lambda: [process.wait() for process in started.leading])
    with local_ray([]):
        started.stop(index)
    assert started.alive() == [False, False]
    assert was_lost()


def test_what_is_left_of_a_ray_is_ended_before_it_is_shut_down(monkeypatch: pytest.MonkeyPatch, started: _Ray) -> None:
    """Its raylet was killed: `shutdown` may wait for the GCS."""
    monkeypatch.setattr(ray, "init", lambda **arguments: None)
    monkeypatch.setattr(start, "_was_lost", threading.Event())
    monkeypatch.setattr(ray, "shutdown", lambda: started.leading[0].wait())
    with local_ray([]):
        started.leading[1].kill()
        started.leading[1].wait()
    assert started.alive() == [False, False]
    assert was_lost()


def test_a_ray_that_takes_too_long_to_start_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's C++ code would wait for its GCS for one to three minutes, and then end this process."""
    gone = threading.Event()
    monkeypatch.setattr(ray, "init", lambda **arguments: gone.wait(30))
    monkeypatch.setattr(start, "_was_lost", threading.Event())
    monkeypatch.setattr(start, "_STARTING_S", 0.5)
    try:
        with pytest.raises(RunError, match=r"within 0 s|within 1 s"), local_ray([]):
            pass
        assert was_lost()
    finally:
        gone.set()
