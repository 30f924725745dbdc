"""doctor: what it finds, and that a fault is an exit code."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from alray.cli import doctor
from alray.cli.doctor import CheckResult
from alray.runtime.cluster.nodes import ClusterNode


def test_this_machine_can_run_alray(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("doctor", "--json")
    assert (said.code, said.err, said.json["ok"]) == (0, "", True)
    states = {check["name"]: check["state"] for check in said.json["checks"]}
    names = ("python", "torch", "torchvision", "ray", "processors", "gpus", "shared memory", "disk")
    assert tuple(states) == names


def test_a_fault_is_told_with_its_mend(alray: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [CheckResult("python", "ok", "3.11.7"), CheckResult("gpus", "fault", "2 there", "install a driver")]
    monkeypatch.setattr(doctor, "results", lambda address: iter(found))
    said = alray("doctor")
    assert said.code == 1
    assert said.out.splitlines() == ["python  3.11.7", "gpus    fault: 2 there; install a driver"]
    assert alray("doctor", "--json").json["ok"] is False


def test_a_gpu_whose_driver_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's library counts it, and CUDA cannot open it."""
    monkeypatch.setattr("alray.core.accelerator.available", lambda: None)
    monkeypatch.setattr("alray.core.accelerator.count", lambda: 1)
    found = doctor.gpus()
    assert found.state == "fault" and "newer NVIDIA driver" in (found.hint or "")
    monkeypatch.setattr("alray.core.accelerator.count", lambda: 0)
    assert doctor.gpus().state == "ok"


def test_a_disk_that_is_read_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert doctor.disk(tmp_path / "a" / "b").state == "ok"
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    found = doctor.disk(tmp_path / "a" / "b")
    assert found.state == "fault" and str(tmp_path) in found.message
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
