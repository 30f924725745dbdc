"""What is submitted for a new run and for one that goes on, and what the cluster runs then."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from alray.cli import job as on_cluster
from alray.cli.main import execute
from alray.config.loading.load import load_spec
from alray.core.errors import PlanError, RequestError
from alray.submit.dashboard import Dashboard, Job, Node
from alray.submit.locations import PACKAGES
from alray.submit.send import require_room_for, send, send_resume

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
        self.asked = 0

    def submit(
        self, job_id: str, command: str, metadata: Mapping[str, str], *, runtime_env: dict[str, Any], node: str | None
    ) -> None:
        assert runtime_env["env_vars"] == {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "60"}
        self.sent[job_id] = command, metadata

    def job(self, job_id: str) -> Job:
        return Job(job_id, self.status, "", self.sent[job_id][1], None, None, None, None)

    def jobs(self) -> list[Job]:
        return [self.job(job_id) for job_id in reversed(self.sent)]

    def nodes(self) -> list[Node]:
        self.asked += 1
        return [Node({}, {"CPU": 4.0}), Node({"zone": "b"}, {"CPU": 1.0})]


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
    monkeypatch.setattr(sys, "argv", sys.argv)
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
    assert first.result == str(specs / "jobs" / first.id), "the run has the name of its job"
    run_there(cluster.sent[first.id][0])
    assert Path.cwd() == specs / "jobs" / PACKAGES / first.id
    assert executed == [["run", "mine.yaml", "run.epochs=2", "--output", first.result]]
    assert sys.argv == ["alray", "run", "mine.yaml", "run.epochs=2", "--output", first.result], "as a user types it"
    for given in (first.id, first.result):
        executed.clear()
        again = send_resume(cluster, given, ["pipeline.stages=1"], allow_code=False)
        assert (again.result, cluster.job(again.id).require_result()) == (first.result, first.result)
        run_there(cluster.sent[again.id][0])
        assert executed == [["resume", first.result, "pipeline.stages=1"]]
    assert send_resume(cluster, again.id, [], allow_code=False).result == first.result


def test_a_job_can_be_stopped_where_ray_ignores_sigint(specs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that starts Ray with `&` lets it ignore SIGINT, and its jobs with it."""
    heard: list[object] = []
    monkeypatch.setattr(on_cluster, "execute", lambda words: heard.append(signal.getsignal(signal.SIGINT)) or 0)
    monkeypatch.setattr(sys, "argv", sys.argv)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert on_cluster.main(["resume", str(specs / "run")]) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.default_int_handler]


def test_a_study_goes_on_as_a_study(specs: Path, executed: list[list[str]]) -> None:
    cluster = Cluster()
    first = submitted(cluster, "study.yaml", str(specs / "jobs"))
    Path(first.result).mkdir(parents=True)
    (Path(first.result) / "study.yaml").touch()
    for given in (first.result + "/", first.id):
        again = send_resume(cluster, given, [], allow_code=False)
        assert cluster.job(again.id).metadata["alray"] == "study"
    elsewhere = send_resume(cluster, "/of/another/cluster", [], allow_code=False)
    assert cluster.job(elsewhere.id).metadata["alray"] == "resume"
    run_there(cluster.sent[again.id][0])
    assert executed == [["study", "--resume", first.result]]


def test_a_folder_on_object_storage(specs: Path, executed: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(specs / "home"))
    cluster = Cluster()
    first = submitted(cluster, "mine.yaml", "s3://bucket/jobs/")
    assert first.result == f"s3://bucket/jobs/{first.id}"
    run_there(cluster.sent[first.id][0])
    assert Path.cwd() == specs / "home" / "alray-jobs" / PACKAGES / first.id
    run_there(cluster.sent[send_resume(cluster, first.result, [], allow_code=False).id][0])
    assert [words[-1] for words in executed] == [first.result] * 2
    monkeypatch.chdir(specs)
    with pytest.raises(RequestError, match="--output: a study needs a folder on a disk"):
        submitted(cluster, "study.yaml", "s3://bucket/jobs")


def test_what_cannot_go_on_is_refused(specs: Path) -> None:
    cluster = Cluster(status="RUNNING")
    first = submitted(cluster, "mine.yaml")
    for given in (first.id, first.result):
        with pytest.raises(RequestError, match=f"--resume: the job `{first.id}` has not ended, and writes to .*; wait"):
            send_resume(cluster, given, [], allow_code=False)
    cluster.sent["another"] = "sleep 1", {}
    with pytest.raises(RequestError, match="`another` is no job of `alray submit`"):
        send_resume(cluster, "another", [], allow_code=False)
    with pytest.raises(RequestError, match="--output: the folder on the cluster is not absolute"):
        submitted(cluster, "mine.yaml", "jobs")


def test_the_nodes_are_asked_for_once(specs: Path) -> None:
    cluster = Cluster()
    trial = load_spec(Path("mine.yaml"), []).spec
    labelled = load_spec(Path("mine.yaml"), ["resources.labels.zone=b", "pipeline.stages=1"]).spec
    require_room_for([trial, labelled, trial], cluster)
    assert cluster.asked == 1
    wide = labelled.model_copy(update={"resources": labelled.resources.model_copy(update={"labels": {"zone": "c"}})})
    with pytest.raises(PlanError, match="can never be placed"):
        require_room_for([trial, wide], cluster)


def test_a_head_that_lists_its_node_late_is_waited_for(specs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after its start a head has no node: that said "can never be placed: 0 CPU on 0 nodes"."""
    cluster = Cluster()
    answers = [[], [], cluster.nodes()]
    monkeypatch.setattr("alray.submit.send._ASK_AGAIN_S", 0.0)
    monkeypatch.setattr(cluster, "nodes", lambda: answers.pop(0))
    require_room_for([load_spec(Path("mine.yaml"), []).spec], cluster)
    assert answers == []
    monkeypatch.setattr("alray.submit.send._BEGINNING_S", 0.0)
    monkeypatch.setattr(cluster, "nodes", list)
    with pytest.raises(RequestError, match="the cluster has no node yet"):
        require_room_for([load_spec(Path("mine.yaml"), []).spec], cluster)


def test_a_full_disk_is_told(specs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(source: str, target: str) -> None:
        raise shutil.Error([("./mine.yaml", f"{target}/mine.yaml", "[Errno 28] No space left on device")])

    monkeypatch.setattr(shutil, "copytree", full)
    assert on_cluster.main(["run", "/jobs/packages/a", "/jobs/a", "mine.yaml"]) == 2
    assert "the package cannot be copied here: [Errno 28] No space left on device" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "SPEC: give either SPEC or --resume RUN; name one of them"),
        (
            ["--resume", "/run", "--output", "/jobs"],
            "--resume: a run continues in its folder, with what was sent before",
        ),
    ],
)
def test_what_the_command_refuses(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["submit", *words, "--address", "nowhere.invalid"]) == 2
    assert said in in_lines(capsys.readouterr().err)
