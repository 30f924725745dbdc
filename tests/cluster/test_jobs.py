"""A real cluster of two nodes with a dashboard and a token (`cluster/local.sh`): jobs are sent, followed and fetched.

Every command is a separate process, as a person runs it.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from ..engine.conftest import OWN_BLOCKS, TINY
from ..told import in_lines

pytestmark = [pytest.mark.ray, pytest.mark.full, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parents[2] / "cluster" / "local.sh"
STUDY = "study: two\nbase: tiny.yaml\nset: {run.epochs: 1}\naxes: {pipeline.stages: [1, 2]}\nmax_concurrent: 1\n"
LONG = ("run.epochs=20", "model.components.2.sleep_s=0.02")
SLOW = ("run.epochs=200", "model.components.2.sleep_s=0.02")


@dataclass
class Cluster:
    """A cluster, and how to speak to it. port: of its head."""

    url: str
    port: int
    environment: Mapping[str, str]
    folder: Path

    def start(self, *words: str, **streams: object) -> subprocess.Popen[str]:
        """Begin a command of alray in the folder with the specs."""
        command = [sys.executable, "-m", "alray", *words]
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        return subprocess.Popen(command, text=True, cwd=self.folder, env=dict(self.environment), **given)

    def alray(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=240)
        assert process.returncode == code, out + err
        return subprocess.CompletedProcess(words, code, out, err)

    def submit(self, spec: str, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.alray("submit", spec, *words, "--output", str(self.folder / "jobs"), code=code)

    def ray_job(self, *words: str) -> str:
        """What `ray job` prints."""
        command = [str(Path(sys.executable).parent / "ray"), "job", *words]
        done = subprocess.run(
            command, env=dict(self.environment), capture_output=True, text=True, timeout=90, check=True
        )
        return done.stdout + done.stderr

    def answer(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.alray(*words, "--json").stdout)
        return answer


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, server: str) -> Iterator[Cluster]:
    """Its nodes have the credentials for the S3 server in their environment."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "tiny.yaml").write_text(TINY)
    (folder / "own_blocks.py").write_text(OWN_BLOCKS)
    (folder / "study.yaml").write_text(STUDY)
    ray_files = tempfile.mkdtemp(prefix="alray-", dir="/tmp")  # the name of a socket holds 107 characters
    port, dashboard_port = free_port(), free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LOCAL_CLUSTER": str(folder / "local"),
        "PORT": str(port),
        "DASHBOARD_PORT": str(dashboard_port),
        "CPUS": "1",
        "RAY_TMP": ray_files,
    }
    try:
        said = subprocess.run([SCRIPT, "up"], env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        exported = dict(word.split("=", 1) for word in said.split()[1:])
        assert exported["RAY_API_SERVER_ADDRESS"] == f"http://127.0.0.1:{dashboard_port}"
        yield Cluster(exported["RAY_API_SERVER_ADDRESS"], port, environment | exported, folder)
    finally:
        subprocess.run([SCRIPT, "down"], env=environment, check=True)
        shutil.rmtree(ray_files)


@pytest.fixture(scope="module")
def weights(cluster: Cluster) -> str:
    """The hash that every way of running the tiny spec must end in."""
    return str(cluster.answer("run", "tiny.yaml", "--inline", "--output", "inline")["weights_sha256"])


def summary(answer: dict[str, Any]) -> dict[str, Any]:
    """The summary of the run of a job, whose disk is that of this machine."""
    return dict(json.loads((Path(answer["job"]["result"]) / "summary.json").read_text()))


def test_a_job_ends_in_the_bits_of_one_process_and_its_folder_comes_back(cluster: Cluster, weights: str) -> None:
    done = cluster.submit("tiny.yaml", "pipeline.partition=[2,2]", "--json")
    answer = json.loads(done.stdout)
    ended = summary(answer)
    assert (ended["weights_sha256"], ended["stages"]) == (weights, 2)
    assert "2 stages [2, 2]" in done.stderr and "after mini-batch 21" in done.stderr
    job = answer["job"]["id"]
    assert answer["job"]["status"] == "SUCCEEDED"
    fetched = cluster.answer("fetch", job, "--output", "fetched")
    there = cluster.folder / "jobs" / job
    origin = json.loads((there / "environment.json").read_text())
    assert origin["command"] == ["alray", "run", "tiny.yaml", "pipeline.partition=[2,2]", "--output", str(there)]
    names = sorted(str(path.relative_to(there)) for path in there.rglob("*") if path.is_file())
    assert "summary.json" in names and any(name.endswith(".safetensors") for name in names)
    assert filecmp.cmpfiles(there, str(fetched["folder"]), names, shallow=False) == (names, [], [])
    assert weights in cluster.ray_job("logs", job) and job in cluster.ray_job("list")
    assert not list(Path(cluster.environment["RAY_TMP"]).rglob("*.tar"))


def test_the_quickstart_is_what_the_readme_says(cluster: Cluster) -> None:
    root = SCRIPT.parents[1]
    answer = json.loads(cluster.submit(str(root / "specs" / "quickstart.yaml"), "--json").stdout)
    cluster.alray("fetch", answer["job"]["id"])
    fetched = json.loads((cluster.folder / "runs" / answer["job"]["id"] / "summary.json").read_text())
    assert fetched["weights_sha256"][:8] in (root / "docs/how_it_works.md").read_text(encoding="utf-8")


def test_attached_with_a_token(cluster: Cluster, weights: str) -> None:
    address = f"127.0.0.1:{cluster.port}"
    words = ("run", "tiny.yaml", "pipeline.partition=[2,2]", "--address", address, "--output", "attached")
    assert cluster.answer(*words)["weights_sha256"] == weights


def test_a_study_is_a_job_too(cluster: Cluster) -> None:
    done = cluster.submit("study.yaml", "--json")
    answer = json.loads(done.stdout)
    assert (answer["job"]["command"], answer["job"]["status"]) == ("study", "SUCCEEDED")
    cluster.alray("fetch", answer["job"]["id"])
    assert (cluster.folder / "studies" / answer["job"]["id"] / "trials" / "0001" / "summary.json").is_file()


def test_a_study_that_is_stopped_reports_what_has_ended(cluster: Cluster) -> None:
    slow = ("axes.model.components.2.sleep_s=[0,1]", "axes.pipeline.stages=[1]")
    process = cluster.start("submit", "study.yaml", *slow, "--output", str(cluster.folder / "jobs"))
    assert process.stdout is not None and process.stderr is not None
    job = process.stderr.readline().split()[1].rstrip(":")
    for line in process.stdout:
        if line.startswith("[1/2]"):
            break
    assert "was stopped" in cluster.ray_job("stop", job)
    process.communicate(timeout=20)
    assert process.returncode == 130
    folder = cluster.folder / "jobs" / job
    assert json.loads((folder / "study.json").read_text())["status"] == "interrupted"
    assert (folder / "report.html").is_file()


def test_too_few_devices(cluster: Cluster) -> None:
    began_s = time.monotonic()
    done = cluster.submit("tiny.yaml", "pipeline.stages=4", code=2)
    assert "resources.per_stage: 4 stages of 1 CPU each can never be placed: the cluster has 2 CPU" in done.stderr
    assert time.monotonic() - began_s < 10


def test_a_wrong_token_and_a_wrong_address(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("wrong" * 8)
    environment = {**cluster.environment, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    stranger = Cluster(cluster.url, cluster.port, environment, cluster.folder)
    for words, message in (
        ((), "refuses this token"),
        (("--address", f"127.0.0.1:{free_port()}"), "no dashboard answers"),
        (("--address", f"127.0.0.1:{cluster.port}"), "no dashboard answers"),
    ):
        began_s = time.monotonic()
        assert message in stranger.submit("tiny.yaml", *words, code=2).stderr
        assert time.monotonic() - began_s < 10
    attached = stranger.alray("run", "tiny.yaml", "--address", f"127.0.0.1:{cluster.port}", code=2)
    assert "refuses this token; set RAY_AUTH_MODE=token" in in_lines(attached.stderr)


def test_ctrl_c_detaches_and_a_stop_ends_with_a_checkpoint(cluster: Cluster) -> None:
    process = cluster.start("submit", "tiny.yaml", *SLOW, "--output", str(cluster.folder / "jobs"))
    assert process.stdout is not None and process.stderr is not None
    job = process.stderr.readline().split()[1].rstrip(":")
    for line in process.stdout:
        if line.startswith("after mini-batch"):
            break
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130 and "the job continues" in err
    assert "RUNNING" in cluster.ray_job("status", job)
    assert "was stopped" in cluster.ray_job("stop", job)
    cluster.alray("fetch", job, "--output", "stopped")
    stopped = json.loads((cluster.folder / "stopped" / "summary.json").read_text())
    assert stopped["status"] == "interrupted" and stopped["steps"] > 0
    assert list((cluster.folder / "stopped" / "checkpoints").glob("step-*/manifest.json"))


@pytest.fixture(scope="module")
def longer(cluster: Cluster) -> str:
    """The hash that the long run must end in, however often it was ended."""
    return str(cluster.answer("run", "tiny.yaml", LONG[0], "--inline", "--output", "long")["weights_sha256"])


def killed(cluster: Cluster, *words: str) -> tuple[str, str]:
    """The id of a job that was killed (SIGKILL) once it had trained, and what `alray submit` printed at its end."""
    process = cluster.start("submit", "tiny.yaml", *LONG, *words)
    assert process.stdout is not None and process.stderr is not None
    job = process.stderr.readline().split()[1].rstrip(":")
    for line in process.stdout:
        if line.startswith("after mini-batch"):
            for driver in psutil.process_iter(["cmdline"]):
                command = driver.info["cmdline"] or []
                if "alray.cli.job" in command and any(job in word for word in command):
                    driver.kill()
    _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    return job, said


def test_a_job_that_was_killed_goes_on(cluster: Cluster, longer: str) -> None:
    job, said = killed(cluster, "--output", str(cluster.folder / "jobs"))
    assert f"`alray submit --resume {job}` continues from its last checkpoint" in said
    answer = cluster.answer("submit", "--resume", job)
    ended = summary(answer)
    assert (ended["weights_sha256"], ended["status"], len(ended["attempts"])) == (longer, "finished", 2)
    assert answer["job"]["result"] == str(cluster.folder / "jobs" / job)
    over = json.loads(cluster.alray("submit", "--resume", answer["job"]["result"], "--json").stdout)
    assert summary(over)["weights_sha256"] == longer
    refused = cluster.alray("submit", "--resume", "/nowhere", code=2)
    assert "/nowhere: no such run folder" in refused.stderr


def test_a_run_on_object_storage_goes_on_and_comes_back(cluster: Cluster, bucket: str, longer: str) -> None:
    job, _ = killed(cluster, "--output", f"{bucket}/jobs")
    answer = cluster.answer("submit", "--resume", f"{bucket}/jobs/{job}", "pipeline.stages=1")
    cluster.alray("fetch", answer["job"]["id"], "--output", "stored")
    stored = json.loads((cluster.folder / "stored" / "summary.json").read_text())
    assert stored["weights_sha256"] == longer
    assert (cluster.folder / "stored" / "records.jsonl").is_file()
    assert cluster.answer("report", "stored")["report"] == "stored/report.html"
