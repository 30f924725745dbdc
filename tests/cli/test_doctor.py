"""doctor: what it finds, and that a fault is an exit code."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from alray.cli import checks, node_checks
from alray.cli.check_result import CheckResult
from alray.cli.cluster_checks import access_to, of_node
from alray.core import accelerator
from alray.core.compat import Private
from alray.runtime.cluster.survey import NodeFacts, Surveyor


class Disk(NamedTuple):
    """As `shutil.disk_usage` tells it."""

    total: int
    used: int
    free: int


def test_this_machine_can_run_alray(alray: Callable[..., Any], spec: Path) -> None:
    said = alray("doctor", "--json")
    assert (said.code, said.err, said.json["ok"]) == (0, "", True)
    states = {check["name"]: check["state"] for check in said.json["checks"]}
    names = (
        "python",
        "torch",
        "ray",
        "torchvision",
        "private parts",
        "processors",
        "memory",
        "shared memory",
        "gpus",
        "nccl",
    )
    after = ("network", "ports", "clock", "run folder", "disk of Ray", "authentication", "leftovers")
    assert list(states) == [*names, *after]
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
        "fault    ray: not installed",
        "         = help: install ray 2.60 or newer",
        "2 checks: 1 fault",
    ]
    assert alray("doctor", "--json").json["ok"] is False


def test_libraries_that_are_too_old_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(name: str) -> str:
        if name == "torchvision":
            raise checks.metadata.PackageNotFoundError(name)
        return {"torch": "2.9.1", "ray": "3.0rc1"}[name]

    monkeypatch.setattr(checks.metadata, "version", installed)
    assert checks.library("torch") == CheckResult(
        "torch", "fault", "2.9.1 is older than 2.13", "install torch 2.13 or newer"
    )
    assert checks.library("ray").state == "ok"
    assert checks.library("torchvision").message == "not installed"


def test_a_private_part_that_a_version_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Private("torch.nn", "Module", parts=("_gone",), why="nothing")
    monkeypatch.setattr("alray.core.compat.PRIVATE", {"gone": gone})
    found = checks.private_parts()
    assert (found.state, "torch.nn.Module" in found.message) == ("fault", True)
    assert "torch<3,>=2.13" in (found.hint or "")


def test_a_gpu_whose_driver_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's library counts it, and CUDA cannot open it."""
    monkeypatch.setattr("alray.core.accelerator.available", lambda: None)
    monkeypatch.setattr("alray.core.accelerator.count", lambda: 1)
    found = checks.gpus()
    assert found.state == "fault" and "newer NVIDIA driver" in (found.hint or "")
    monkeypatch.setattr("alray.core.accelerator.count", lambda: 0)
    assert checks.gpus().state == "ok"


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
    assert (found.state, "--shm-size=" in (found.hint or "")) == ("warning", True)


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
    assert f"{agent.pid} (ray::DashboardAgent)" in found.message
    assert found.hint is not None and str(agent.pid) in found.hint.partition("kill ")[2].split()


def test_a_port_that_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_checks, "_RAYS_HEAD", "no such process")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(node_checks, "_RAYS_PORTS", {taken.getsockname()[1]: "head"})
        found = node_checks.ports()
    assert found.state == "warning" and found.message.endswith("(head)")
    assert found.hint == "to start a head here: ray start --head --port=N --dashboard-port=N"
    assert node_checks.ports().state == "ok"


def test_a_clock_that_nothing_keeps_right(monkeypatch: pytest.MonkeyPatch) -> None:
    for state, told in ((5, "warning"), (0, "ok")):
        monkeypatch.setattr(node_checks, "_adjtimex", lambda told=state: told)
        assert node_checks.clock().state == told


def test_a_folder_for_ray_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray makes it."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "a" / "b"))
    found = node_checks.rays_disk()
    assert found.state != "fault" and f"{tmp_path}/a/b" in found.message
    monkeypatch.setattr(node_checks.os, "access", lambda path, mode: False)  # root may write everywhere
    found = node_checks.rays_disk()
    assert found.state == "fault" and found.message.startswith(f"{tmp_path} cannot be written")


def test_a_token_that_ray_does_not_send(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    found = node_checks.authentication()
    assert (found.state, found.message) == (
        "warning",
        "`alray submit` sends the token in RAY_AUTH_TOKEN, and Ray itself sends none to a cluster",
    )
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert node_checks.authentication().message.startswith("no token is sent")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    assert node_checks.authentication().message == "the token is in RAY_AUTH_TOKEN"


def test_a_token_that_is_missing_empty_or_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    token = tmp_path / "token"
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    found = node_checks.authentication()
    assert found.state == "fault" and f"{token}, which cannot be read: No such file" in found.message
    token.touch(0o600)
    assert node_checks.authentication().message == f"{token} is empty"
    token.write_text("secret")
    assert node_checks.authentication().state == "ok"
    token.chmod(0o644)
    assert (node_checks.authentication().state, node_checks.authentication().hint) == ("warning", f"chmod 600 {token}")


def test_nodes_that_do_not_fit_together() -> None:
    versions = {"python": "3.11.7", "torch": "2.15.0", "obstore": None}
    first = NodeFacts("a", versions, 4.0, 0.0, 10**9, 10**10, {}, True, 0.0)
    (found,) = of_node(first, [first])
    assert (found.state, found.message) == ("ok", "4 CPU; python 3.11.7, torch 2.15.0")
    other = replace(first, host="b", versions=versions | {"torch": "2.14.0", "obstore": "0.12.1"}, clock_s=-3.0)
    assert [(found.state, found.message) for found in of_node(other, [first, other])] == [
        ("fault", "other versions: torch 2.14.0 (a has 2.15.0), obstore 0.12.1 (a has none)"),
        ("warning", "its clock is 3.0 s behind"),
    ]
    for change, message in (
        ({"shared_memory_bytes": 64_000_000}, "64.0 MB of shared memory"),
        ({"disk_bytes": 0}, "0 B left on the disk of Ray"),
    ):
        (found,) = of_node(replace(first, host="b", **change), [first])
        assert (found.state, found.message) == ("warning", message)


def test_a_cluster_that_whoever_reaches_it_can_use() -> None:
    open_to_all = NodeFacts("a", {}, 4.0, 0.0, 0, 0, {"gcs_server": (6379,), "workers": (7, 9)}, False, 0.0)
    nodes = [open_to_all, replace(open_to_all, asks_for_token=True), replace(open_to_all, open_ports={})]
    assert [found.state for found in access_to(nodes)] == ["fault", "ok", "ok"]
    assert next(access_to(nodes)).message.endswith("Ray listens for other hosts: gcs_server 6379; workers 7, 9")


def test_nodes_with_gpus_are_compared_with_each_other() -> None:
    """The head has none."""
    head = NodeFacts("head", {"torch": "2.15.0"}, 4.0, 0.0, 10**9, 10**10, {}, True, 0.0)
    first = replace(head, host="a", versions={"torch": "2.15.0", "cuda": "13.2", "nccl": "2.30.7"}, gpus=1.0)
    second = replace(first, host="b", versions=first.versions | {"nccl": "2.29.1"})
    third = replace(first, host="c", versions=first.versions | {"cuda": None, "nccl": None})
    known = [head, first, second, third]
    assert [[found.state for found in of_node(node, known)] for node in known] == [
        ["ok"],
        ["ok"],
        ["fault"],
        ["fault", "fault"],
    ]
    assert next(of_node(second, known)).message == "other versions: nccl 2.29.1 (a has 2.30.7)"
    assert list(of_node(third, known))[1].message == "1 GPU, and a torch that was built without CUDA and NCCL"


@pytest.mark.parametrize(
    ("built_for", "offers", "found"),
    [
        ({"hip": "7.0"}, "cuda", {"rocm": "7.0", "nccl": "2.30.7"}),
        ({"xpu": "20250101"}, "xpu", {"xpu": "20250101"}),
        ({}, "hpu", {}),
    ],
)
def test_a_torch_for_other_gpus_than_nvidias_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, built_for: dict[str, str], offers: str, found: dict[str, str]
) -> None:
    """`pip install torch` would take the torch of an AMD, an Intel or another accelerator away."""
    for name in ("cuda", "hip", "xpu"):
        monkeypatch.setattr(torch.version, name, built_for.get(name), raising=False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device(offers))
    monkeypatch.setattr(accelerator, "nccl_version", lambda: "2.30.7" if "hip" in built_for else None)
    versions = Surveyor().facts(2.0)["versions"]
    assert {name: version for name, version in versions.items() if name in ("cuda", "rocm", "xpu", "nccl")} == found
    node = NodeFacts("a", versions, 4.0, 2.0, 10**9, 10**10, {}, True, 0.0)
    assert [found.state for found in of_node(node, [node])] == ["ok"]
