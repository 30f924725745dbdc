"""What is submitted for a new run and for one that goes on, and what the cluster runs then."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from alray.cli import job as on_cluster
from alray.cli.main import execute
from alray.errors import RequestError
from alray.submit.dashboard import Dashboard, Job
from alray.submit.places import PACKAGE
from alray.submit.send import send, send_resume

from ..told import in_lines

SPEC = """\
name: mine
data: {source: digits, batch_size: 64}
model: {components: [{block: linear, width: 3}]}
method: {kind: associated_learning, label_dim: 4}
run: {epochs: 1}
"""


class Cluster(Dashboard):
    """A dashboard that keeps what it is asked to submit as jobs of a status."""

    def __init__(self, status: str = "FAILED") -> None:
        super().__init__("http://nowhere")
        self.status = status
        self.sent: dict[str, tuple[str, Mapping[str, str]]] = {}

    def submit(
        self, job_id: str, command: str, metadata: Mapping[str, str], *, runtime_env: dict[str, Any], node: str | None
    ) -> None:
        assert runtime_env["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "60"}
        self.sent[job_id] = command, metadata

    def job(self, job_id: str) -> Job:
        return Job(job_id, self.status, "", self.sent[job_id][1], None, None, None, None)

    def nodes(self, labels: Mapping[str, str]) -> list[dict[str, float]]:
        return [{"CPU": 4.0}]


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a spec and a study; the current one."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(SPEC)
    Path("study.yaml").write_text("study: two\nbase: mine.yaml\naxes: {seed: [1, 2]}\n")
    return tmp_path


def submitted(cluster: Cluster, spec: str, folder: str | None = None) -> Any:
    return send(
        cluster, Path(spec), ["run.epochs=2"][: spec == "mine.yaml"], folder=folder, include=[], allow_code=False
    )


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of alray that a job ran."""
    commands: list[list[str]] = []
    monkeypatch.setattr(on_cluster, "execute", lambda words: commands.append(words) or 0)
    return commands


def run_there(command: str) -> None:
    (
        python,
        *module,
    ) = shlex.split(command)
    assert (python, module[:2]) == ("python", ["-m", "alray.cli.job"])
    assert on_cluster.main(module[2:]) == 0


def test_a_run_and_its_resume_use_one_folder(specs: Path, executed: list[list[str]]) -> None:
    cluster = Cluster()
    first = submitted(cluster, "mine.yaml", str(specs / "jobs"))
    assert first.result == str(specs / "jobs" / first.id / "result")
    run_there(cluster.sent[first.id][0])
    assert Path.cwd() == specs / "jobs" / first.id / PACKAGE
    assert executed == [["run", "mine.yaml", "run.epochs=2", "--run-dir", first.result, "--events"]]
    for given in (first.id, first.result):
        executed.clear()
        again = send_resume(cluster, given, ["pipeline.stages=1"], allow_code=False)
        assert (again.result, cluster.job(again.id).require_result()) == (first.result, first.result)
        run_there(cluster.sent[again.id][0])
        assert executed == [["resume", first.result, "pipeline.stages=1", "--events"]]
    assert send_resume(cluster, again.id, [], allow_code=False).result == first.result


def test_a_study_goes_on_as_a_study(specs: Path, executed: list[list[str]]) -> None:
    cluster = Cluster()
    first = submitted(cluster, "study.yaml", str(specs / "jobs"))
    Path(first.result).mkdir(parents=True)
    (Path(first.result) / "study.yaml").touch()
    again = send_resume(cluster, first.id, [], allow_code=False)
    assert cluster.job(again.id).metadata["alray"] == "study"
    run_there(cluster.sent[again.id][0])
    assert executed == [["study", "--resume", first.result, "--events"]]


def test_a_folder_on_object_storage(specs: Path, executed: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(specs / "home"))
    cluster = Cluster()
    first = submitted(cluster, "mine.yaml", "s3://bucket/jobs/")
    assert first.result == f"s3://bucket/jobs/{first.id}"
    run_there(cluster.sent[first.id][0])
    assert Path.cwd() == specs / "home" / "alray-jobs" / first.id / PACKAGE
    run_there(cluster.sent[send_resume(cluster, first.result, [], allow_code=False).id][0])
    assert [words[-2] for words in executed] == [first.result] * 2
    monkeypatch.chdir(specs)
    with pytest.raises(RequestError, match="--folder: a study needs a folder on a disk"):
        submitted(cluster, "study.yaml", "s3://bucket/jobs")


def test_what_cannot_go_on_is_refused(specs: Path) -> None:
    cluster = Cluster(status="RUNNING")
    first = submitted(cluster, "mine.yaml")
    with pytest.raises(RequestError, match=f"--resume: the job `{first.id}` is not over; wait for its end, or stop it"):
        send_resume(cluster, first.id, [], allow_code=False)
    cluster.sent["another"] = "sleep 1", {}
    with pytest.raises(RequestError, match="`another` is no job of `alray submit`"):
        send_resume(cluster, "another", [], allow_code=False)
    with pytest.raises(RequestError, match="--folder: the folder on the cluster is not absolute"):
        submitted(cluster, "mine.yaml", "jobs")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "SPEC: give either SPEC or --resume RUN; name one of them"),
        (["--resume", "/run", "--folder", "/jobs"], "--resume: a run goes on in its folder, with what was sent before"),
    ],
)
def test_what_the_command_refuses(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["submit", *words, "--address", "nowhere.invalid"]) == 2
    assert said in in_lines(capsys.readouterr().err)
