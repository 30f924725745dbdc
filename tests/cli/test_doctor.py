"""doctor: what it finds, and that a fault is an exit code."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from alray.cli import checks
from alray.cli.checks import CheckResult


class Disk(NamedTuple):
    """As `shutil.disk_usage` tells it."""

    total: int
    used: int
    free: int


def test_this_machine_can_run_alray(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("doctor", "--json")
    assert (said.code, said.err, said.json["ok"]) == (0, "", True)
    states = {check["name"]: check["state"] for check in said.json["checks"]}
    names = ("python", "torch", "ray", "torchvision", "processors", "memory", "shared memory", "gpus", "network")
    assert list(states) == [*names, "run folder", "leftovers"]
    assert states["network"] == "ok"


def test_a_fault_is_told_with_its_mend(alray: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        CheckResult("python", "ok", "3.11.7"),
        CheckResult("ray", "fault", "not installed", "install ray 2.60 or newer"),
    ]
    monkeypatch.setattr(checks, "findings", lambda: iter(found))
    said = alray("doctor")
    assert said.code == 1
    assert said.out.splitlines() == [
        "ok       python: 3.11.7",
        "fault    ray: not installed; install ray 2.60 or newer",
    ]
    assert alray("doctor", "--json").json["ok"] is False


def test_libraries_that_are_too_old_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.metadata, "version", {"torch": "2.9.1", "ray": "3.0rc1"}.__getitem__)
    assert checks.library("torch", (2, 13)) == CheckResult(
        "torch", "fault", "2.9.1 is older than 2.13", "install torch 2.13 or newer"
    )
    assert checks.library("ray", (2, 60)).state == "ok"
    monkeypatch.undo()
    assert checks.library("no-such-library", (1, 0)).message == "not installed"


def test_operators_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision import ops

    def nms(*arguments: object) -> None:
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(ops, "nms", nms)
    found = checks.torchvision_fits(CheckResult("torchvision", "ok", "0.29"))
    assert found.state == "fault"
    assert found.message.endswith(": operator torchvision::nms does not exist")


def test_small_shared_memory_makes_ray_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: Disk(64_000_000, 0, 64_000_000))
    found = checks.shared_memory()
    assert (found.state, "--shm-size=" in (found.mend or "")) == ("warning", True)


def test_a_full_disk_and_one_that_is_read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checks.shutil, "disk_usage", lambda path: Disk(10, 10, 0))
        found = checks.run_folder(tmp_path / "runs")
        assert (found.state, "0 B" in found.message) == ("warning", True)

    def refuse(**named: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(checks.tempfile, "NamedTemporaryFile", refuse)
    found = checks.run_folder(tmp_path / "a" / "b")
    assert found.state == "fault"
    assert str(tmp_path) in found.message and "Read-only file system" in found.message
    assert list(tmp_path.iterdir()) == []


def test_no_channel_between_two_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    def refuse(*arguments: object) -> None:
        raise RuntimeError("connection refused")

    monkeypatch.setattr(dist, "ProcessGroupGloo", refuse)
    found = checks.network()
    assert found.state == "fault"
    assert found.message.endswith(": connection refused")


def test_processes_that_outlive_their_ray_are_named() -> None:
    agent = subprocess.Popen(["bash", "-c", "exec -a ray::DashboardAgent sleep 60"])
    try:
        for _ in range(200):
            found = checks.leftovers()
            if str(agent.pid) in found.message:
                break
            time.sleep(0.02)
    finally:
        agent.kill()
        agent.wait()
    assert f"{agent.pid} (ray::DashboardAgent 60)" in found.message
    assert found.mend is not None and str(agent.pid) in found.mend.partition("kill ")[2].split()
