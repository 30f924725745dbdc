"""A Ray that alray starts for itself: nobody else can use it, and nothing of it is left, however its command ends."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
import ray

from alray.core.errors import RequestError, RunError
from alray.runtime.cluster.connect import connect
from alray.runtime.local_ray import start

from .conftest import LONG, Workshop

pytestmark = pytest.mark.own_ray

NICENESS = "RAY_worker_niceness"
ALRAY = [sys.executable, "-c", "from alray.cli.main import main; main()"]
ATTACH = """
import sys
from ray._raylet import GcsClient
print(GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5))
"""
STUDY = """
study: two
base: tiny.yaml
set: {run.epochs: 1, pipeline.stages: 2}
axes: {optimizer.lr: [1e-3, 1e-2]}
"""


def plain_environment(**more: str) -> dict[str, str]:
    """The environment of a user who has set nothing of Ray's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | more


@contextmanager
def going_on(folder: Path, *words: str) -> Iterator[psutil.Popen]:
    """A command of alray in this folder; killed at the end of the block if it still goes on."""
    process = psutil.Popen(
        [*ALRAY, *words], cwd=folder, env=plain_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def until(happened: Callable[[], object], limit_s: float = 150.0) -> None:
    end_s = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def listening(process: psutil.Process) -> set[tuple[str, str, int]]:
    """Program, address and port of each socket on which a process or one that it started takes connections."""
    found = set()
    for each in [process, *process.children(recursive=True)]:
        try:
            for socket in each.net_connections("inet"):
                if socket.status == psutil.CONN_LISTEN or (socket.type.name == "SOCK_DGRAM" and not socket.raddr):
                    found.add((each.name(), socket.laddr.ip, socket.laddr.port))
        except psutil.Error:  # it has ended
            continue
    return found


def outside(sockets: set[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    return [each for each in sockets if not ip_address(each[1].removeprefix("::ffff:")).is_loopback]


def refused(url: str) -> int:
    """The status with which an agent refuses to run a command for somebody without the token."""
    body = json.dumps({"entrypoint": "id"}).encode()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"}), timeout=10)
    return caught.value.code


@pytest.mark.full
def test_others_are_refused_and_a_killed_command_leaves_nothing(workshop: Workshop, own_ray: None) -> None:
    words = ["run", str(workshop.spec), *LONG, "pipeline.stages=1", "replicas.count=2", "data.workers=1"]
    words += ["--output", "run"]
    records = workshop.folder / "run" / "records.jsonl"
    with going_on(workshop.folder, *words) as run:
        until(lambda: records.is_file() and '"kind":"steps"' in records.read_text())
        everything = run.children(recursive=True)
        sockets = listening(run)
        assert {"gcs_server", "raylet"} <= {name for name, _, _ in sockets} and not outside(sockets)

        (raylet,) = (each for each in everything if each.name() == "raylet")
        token = raylet.environ()["RAY_AUTH_TOKEN"]
        (folder,) = (Path(each.cmdline()[-1]) for each in everything if "reaper.py" in "".join(each.cmdline()))
        semaphores = f"sem.{folder.name}-*"
        assert list(Path("/dev/shm").glob(semaphores)), "the loaders' worker names them after the folder"
        assert len(token) == 64 and stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert not any(token in word for each in everything for word in each.cmdline())
        written = [*(workshop.folder / "run").rglob("*"), *folder.rglob("*")]
        assert not any(token.encode() in file.read_bytes() for file in written if file.is_file())

        for name, _, port in sockets:
            if name.startswith("ray::DashboardA") and port == 52365:
                assert refused(f"http://127.0.0.1:{port}/api/job_agent/jobs/") == 401
        (gcs,) = (port for name, _, port in sockets if name == "gcs_server")
        for environment in (plain_environment(RAY_AUTH_MODE="disabled"), plain_environment(RAY_AUTH_TOKEN="a" * 64)):
            command = [sys.executable, "-c", ATTACH, f"127.0.0.1:{gcs}"]
            foreign = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
            assert foreign.returncode != 0 and "uthenticat" in foreign.stderr

        run.kill()
        until(lambda: not any(each.is_running() and each.status() != "zombie" for each in everything), 60.0)
        until(lambda: not folder.exists() and not list(Path("/dev/shm").glob(semaphores)), 60.0)


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ("study", "two.yaml", "--output", "study"),
        ("plan", "tiny.yaml", "--probe", "pipeline.stages=2", "replicas.count=2", "pipeline.costs=null"),
        ("run", "tiny.yaml", "--inline", "pipeline.stages=2", "replicas.count=2"),
        ("run", "tiny.yaml", "method=backpropagation", "replicas={count: 2, engine: ray_train}", "run.epochs=2"),
        ("doctor",),
    ],
    ids=lambda words: words[0],
)
def test_no_command_listens_for_other_hosts(workshop: Workshop, own_ray: None, words: tuple[str, ...]) -> None:
    (workshop.folder / "two.yaml").write_text(STUDY)
    sockets: set[tuple[str, str, int]] = set()
    with going_on(workshop.folder, *words) as command:
        while command.poll() is None:
            sockets |= listening(command)
            time.sleep(0.02)
    assert command.returncode == 0 and not outside(sockets)


@pytest.mark.full
def test_a_command_whose_shell_has_ended_outlives_its_gcs(workshop: Workshop, own_ray: None, longer_reference) -> None:
    """As after `nohup`, and in a container: its parent is process 1, which Ray's C++ code would take for its raylet."""
    words = [*ALRAY, "run", "tiny.yaml", *LONG, "pipeline.stages=2", "--output", "run"]
    shell = "trap '' HUP; \"$@\" >/dev/null 2>error & echo $!"
    begun = subprocess.run(
        ["bash", "-c", shell, "bash", *words],
        cwd=workshop.folder,
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    run = psutil.Process(int(begun.stdout))
    folder = workshop.folder / "run"
    try:
        until(
            lambda: (folder / "records.jsonl").is_file() and '"kind":"steps"' in (folder / "records.jsonl").read_text()
        )
        (gcs,) = (each for each in run.children() if each.name() == "gcs_server")
        gcs.kill()
        until(lambda: not run.is_running() or run.status() == "zombie")
    finally:
        if run.is_running():
            run.kill()
    assert "starting Ray again" in (workshop.folder / "error").read_text()
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["status"], summary["weights_sha256"]) == ("finished", longer_reference.summary.weights_sha256)


@pytest.mark.full
def test_two_in_one_process_have_two_tokens_and_the_environment_is_as_before(own_ray: None, monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("RAY_AUTH")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv(NICENESS, "3")
    before, tokens = dict(os.environ), set()
    for _ in range(2):
        with connect(None, [{"CPU": 1.0}]) as connection:
            assert connection.own and os.environ[NICENESS] == "3"
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
            ray.get(ray.remote(lambda: None).remote(), timeout=60)
        assert {name: value for name, value in os.environ.items() if name.startswith("RAY_")} == {
            name: value for name, value in before.items() if name.startswith("RAY_")
        }
    assert len(tokens) == 2


def test_a_ray_that_does_not_start_is_one_error(monkeypatch, tmp_path: Path) -> None:
    before = set(psutil.Process().children())  # the reaper of the test before may still be at work

    def late(**named: object) -> None:
        begun = set(psutil.Process().children()) - before
        (reaper,) = (each for each in begun if "reaper.py" in "".join(each.cmdline()))
        reaper.kill()  # then the command itself removes what is left
        raise Exception("The current node timed out during startup.\nand more")

    monkeypatch.setattr(ray, "init", late)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "a"))
    monkeypatch.setattr(start, "_LONGEST_SOCKET", 500)
    with (
        pytest.raises(RunError, match=r"Ray did not start on this machine: The current node timed out"),
        connect(None, []),
    ):
        pass
    assert list((tmp_path / "a").iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setenv("RAY_TMPDIR", "/tmp/" + "long" * 10)
    with pytest.raises(RequestError, match="too long for Ray's sockets"), connect(None, []):
        pass
