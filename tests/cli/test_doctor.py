"""doctor: what it finds, and that a fault is an exit code."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from alray.cli import doctor
from alray.cli.doctor import CheckResult
from alray.runtime.cluster.nodes import ClusterNode


class Disk(NamedTuple):
    """As `shutil.disk_usage` tells it."""

    total: int
    used: int
    free: int


def test_this_machine_can_run_alray(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("doctor", "--json")
    assert (said.code, said.err, said.json["ok"]) == (0, "", True)
    states = {check["name"]: check["state"] for check in said.json["checks"]}
    names = ("python", "torch", "torchvision", "ray", "processors", "gpus", "shared memory", "disk")
    assert tuple(states) == names


def test_a_fault_is_told_with_its_mend(alray: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        CheckResult("python", "ok", "3.11.7"),
        CheckResult("ray", "fault", "not installed", "install ray 2.60 or newer"),
    ]
    monkeypatch.setattr(doctor, "results", lambda address: iter(found))
    said = alray("doctor")
    assert said.code == 1
    assert said.out.splitlines() == [
        "ok       python: 3.11.7",
        "fault    ray: not installed",
        "         = help: install ray 2.60 or newer",
        "2 checks: 1 fault",
    ]
    assert alray("doctor", "--json").json["ok"] is False


def test_libraries_that_are_too_old_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        if name == "torchvision":
            raise doctor.metadata.PackageNotFoundError(name)
        return {"torch": "2.9.1", "ray": "3.0rc1"}[name]

    monkeypatch.setattr(doctor.metadata, "version", installed)
    assert doctor.library("torch") == CheckResult(
        "torch", "fault", "2.9.1 is older than 2.13", "install torch 2.13 or newer"
    )
    assert doctor.library("ray").state == "ok"
    assert doctor.library("torchvision").message == "not installed"


def test_a_gpu_whose_driver_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's library counts it, and CUDA cannot open it."""
    monkeypatch.setattr("alray.core.accelerator.available", lambda: None)
    monkeypatch.setattr("alray.core.accelerator.count", lambda: 1)
    found = doctor.gpus()
    assert found.state == "fault" and "newer NVIDIA driver" in (found.hint or "")
    monkeypatch.setattr("alray.core.accelerator.count", lambda: 0)
    assert doctor.gpus().state == "ok"


def test_small_shared_memory_makes_ray_spill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: Disk(64_000_000, 0, 64_000_000))
    found = doctor.shared_memory()
    assert (found.state, "--shm-size=" in (found.hint or "")) == ("warning", True)


def test_a_full_disk_and_one_that_is_read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(doctor.shutil, "disk_usage", lambda path: Disk(10, 10, 0))
        found = doctor.disk(tmp_path / "runs")
        assert (found.state, "0 B" in found.message) == ("warning", True)

    def refuse(**named: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", refuse)
    found = doctor.disk(tmp_path / "a" / "b")
    assert found.state == "fault"
    assert str(tmp_path) in found.message and "Read-only file system" in found.message
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_answers_with_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        ClusterNode("1", "a", "10.0.0.1", {"CPU": 4.0}),
        ClusterNode("2", "b", "10.0.0.2", {"CPU": 8.0, "GPU": 2.0}),
    ]
    monkeypatch.setattr("alray.runtime.cluster.connect.connect", lambda address, bundles: nullcontext())
    monkeypatch.setattr("alray.runtime.cluster.nodes.living_nodes", lambda: nodes)
    assert doctor.cluster("a:6379").message == "2 nodes: a (4 CPU, 0 GPU), b (8 CPU, 2 GPU)"


def test_no_cluster_answers(alray: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    said = alray("doctor", "--address", address, "--json")
    (error,) = said.json["errors"]
    assert (said.code, error["key"]) == (2, "--address") and address in error["message"]
