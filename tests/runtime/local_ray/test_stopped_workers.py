"""A worker of the user Ray that is stopped for good is ended; all other processes are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from alray.data.worker_names import OWNER
from alray.runtime.graph.processes import StageProcesses
from alray.runtime.local_ray.stopped_workers import StoppedWorkers


def sleeping(name: str, owner: str) -> subprocess.Popen[bytes]:
    """A process of this name that belongs to a Ray of this owner."""
    command = ["bash", "-c", f"exec -a {name} sleep 100"]
    return subprocess.Popen(command, env={**os.environ, OWNER: owner})


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    monkeypatch.setenv(OWNER, "/tmp/ray-mine")
    begun = {
        "trial": sleeping("ray::Trial", "/tmp/ray-mine"),
        "running": sleeping("ray::Running", "/tmp/ray-mine"),
        "another's": sleeping("ray::Trial", "/tmp/ray-other"),
        "service": sleeping("raylet", "/tmp/ray-mine"),
    }
    yield begun
    for process in begun.values():
        process.kill()
        process.wait()


def test_only_workers_of_this_ray_that_stay_stopped_are_ended(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    notes: list[str] = []
    workers = StoppedWorkers(notes.append, after_s=0.4)
    time.sleep(0.3)  # until all of them have their names
    for name in ("trial", "another's", "service"):
        processes[name].send_signal(signal.SIGSTOP)
    workers.look()
    assert processes["trial"].poll() is None
    until_s = time.monotonic() + 20
    while processes["trial"].poll() is None and time.monotonic() < until_s:
        workers.look()
        time.sleep(0.05)
    assert [name for name, process in processes.items() if process.poll() is not None] == ["trial"]
    assert len(notes) == 1 and str(processes["trial"].pid) in notes[0]


def test_a_stage_that_is_stopped_while_it_loads_is_not_waited_for(
    processes: dict[str, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, so that Ray reports its end, and the driver starts the stages again."""
    stage, notes = processes["trial"], list[str]()
    time.sleep(0.3)  # until it has its name
    stage.send_signal(signal.SIGSTOP)

    def wait(references: list[str], **named: Any) -> tuple[list[str], list[str]]:
        time.sleep(0.05)
        return (references, []) if stage.poll() is not None else ([], references)

    monkeypatch.setattr(ray, "wait", wait)
    processes_of_stages = StageProcesses(None, (), ("loaded",))  # type: ignore[arg-type]
    processes_of_stages.wait_until_loaded(StoppedWorkers(notes.append, after_s=0.4))
    assert stage.poll() is not None and len(notes) == 1


def test_one_that_continues_in_time_is_left_alone(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    workers = StoppedWorkers(lambda note: None, after_s=1.0)
    time.sleep(0.3)
    for _ in range(3):
        processes["trial"].send_signal(signal.SIGSTOP)
        workers.look()
        processes["trial"].send_signal(signal.SIGCONT)
        time.sleep(0.6)
        workers.look()
    assert processes["trial"].poll() is None
