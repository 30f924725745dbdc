"""`alray submit` on a cluster that is a stand-in: it prints one object, and says how a job ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from alray.submit.dashboard import Dashboard, Job
from alray.submit.send import Sent

from ..told import in_lines

BEGUN = "0.1 s: opening the data\n"
NOT_BEGUN = "Running entrypoint for job j: python -m alray.cli.job\nTraceback:\n  here\nImportError: no wheel\n"


class Cluster:
    """A cluster with one job. interrupted: whether the user types Ctrl-C while its log is read."""

    url = "http://head:8265"

    def __init__(self, status: str, log: str, *, interrupted: bool = False) -> None:
        self.status, self._log, self._interrupted = status, log, interrupted
        self.exit_code = 137

    def job(self, job_id: str) -> Job:
        about = {"alray": "run", "result": "/jobs/j"}
        return Job(job_id, self.status, "exit code 137", about, 0.0, 1.0, self.exit_code, "node")

    def tail(self, job_id: str, take: Callable[[str], None]) -> None:
        if self._interrupted:
            raise KeyboardInterrupt
        take(self._log)


@pytest.fixture
def submit(alray: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Submits to this cluster."""

    def run(cluster: Cluster, *words: str) -> Any:
        monkeypatch.setattr(Dashboard, "open", lambda address: cluster)
        monkeypatch.setattr("alray.submit.send.send", lambda *given, **options: Sent("j", "/jobs/j"))
        return alray("submit", "spec.yaml", "--address", "head", *words)

    return run


def test_a_job_that_was_killed_is_one_object(submit: Callable[..., Any]) -> None:
    cluster = Cluster("FAILED", BEGUN)
    done = submit(cluster, "--json")
    assert done.code == 137
    answer = json.loads(done.out)
    assert answer["ok"] is False and "the job `j` failed: exit code 137" in answer["errors"][0]["message"]
    cluster.exit_code = -9
    assert "the job `j` failed: SIGKILL ended it" in in_lines(submit(cluster).err)


def test_the_log_of_a_job_that_never_began_is_shown(submit: Callable[..., Any]) -> None:
    followed = submit(Cluster("FAILED", NOT_BEGUN))
    assert (followed.code, followed.out) == (137, NOT_BEGUN)
    assert "the job `j` failed" in in_lines(followed.err) and "`alray submit --resume j`" in in_lines(followed.err)


def test_a_log_does_not_act_on_a_terminal(submit: Callable[..., Any]) -> None:
    cluster = Cluster("SUCCEEDED", "a\x1b]0;title\x07b\nc")
    cluster.exit_code = 0
    done = submit(cluster)
    assert done.code == 0 and "alray fetch j --address http://head:8265" in done.err
    assert "\x1b" not in done.out and "\x07" not in done.out and done.out.endswith("b\nc\n")


def test_ctrl_c_leaves_the_job_alone(submit: Callable[..., Any]) -> None:
    done = submit(Cluster("RUNNING", BEGUN, interrupted=True), "--json")
    assert done.code == 130 and json.loads(done.out)["job"]["id"] == "j"
    for said in ("the job continues", "ray job logs --follow j --address http://head:8265", "ray job stop j"):
        assert said in in_lines(done.err)
    left = submit(Cluster("RUNNING", BEGUN), "--no-wait", "--json")
    assert json.loads(left.out) == {"job": "j", "address": "http://head:8265", "result": "/jobs/j"}
    assert "ray job logs --follow j" in in_lines(left.err)
