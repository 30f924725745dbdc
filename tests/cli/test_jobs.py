"""`alray jobs` on a cluster that is a stand-in: each command prints one object, and shows all that is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from alray.cli import submit
from alray.submit.dashboard import Dashboard, Job

from ..told import in_lines

BEGUN = "0.1 s: opening the data\n"
NOT_BEGUN = "Running entrypoint for job j: python -m alray.cli.job\nTraceback:\n  here\nImportError: no wheel\n"


class Cluster:
    """A cluster with one job. interrupts: how often the user types Ctrl-C while its log is read."""

    url = "http://head:8265"

    def __init__(self, status: str, log: str, interrupts: int = 0) -> None:
        self.status, self._log, self._interrupts = status, log, interrupts
        self.stopped, self.exit_code = 0, 137

    def job(self, job_id: str) -> Job:
        return Job(
            job_id,
            self.status,
            "exit code 137",
            {"alray": "run", "result": "/jobs/j"},
            0.0,
            1.0,
            self.exit_code,
            "node",
        )

    def log(self, job_id: str) -> str:
        return self._log

    def tail(self, job_id: str, take: Callable[[str], None]) -> None:
        if self._interrupts:
            self._interrupts -= 1
            raise KeyboardInterrupt
        take(self._log)

    def stop(self, job_id: str) -> None:
        self.stopped += 1


@pytest.fixture
def make_cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    def make(*given: Any) -> Cluster:
        made = Cluster(*given)
        monkeypatch.setattr(Dashboard, "open", lambda address: made)
        return made

    return make


def jobs(alray: Callable[..., Any], *words: str) -> Any:
    return alray("jobs", *words, "--address", "head")


def test_a_job_that_was_killed_is_one_object(alray: Callable[..., Any], make_cluster: Callable[..., Cluster]) -> None:
    make_cluster("FAILED", BEGUN)
    done = jobs(alray, "logs", "j", "--follow", "--json")
    assert done.code == 137
    answer = json.loads(done.out)
    assert answer["ok"] is False and "the job `j` failed: exit code 137" in answer["errors"][0]["message"]
    make_cluster("FAILED", BEGUN).exit_code = -9
    assert "the job `j` failed: SIGKILL ended it" in in_lines(jobs(alray, "logs", "j", "--follow").err)


def test_the_log_of_a_job_that_never_began_is_shown(
    alray: Callable[..., Any], make_cluster: Callable[..., Cluster]
) -> None:
    make_cluster("FAILED", NOT_BEGUN)
    followed = jobs(alray, "logs", "j", "--follow")
    assert (followed.code, followed.out) == (137, NOT_BEGUN)
    assert "the job `j` failed" in in_lines(followed.err) and "`alray jobs logs j`" in in_lines(followed.err)
    assert jobs(alray, "logs", "j").out == NOT_BEGUN
    make_cluster("FAILED", "")
    assert jobs(alray, "logs", "j").out == "exit code 137\n"


def test_a_log_does_not_act_on_a_terminal(alray: Callable[..., Any], make_cluster: Callable[..., Cluster]) -> None:
    make_cluster("SUCCEEDED", "a\x1b]0;title\x07b\nc")
    for words in ((), ("--follow",)):
        out = jobs(alray, "logs", "j", *words).out
        assert "\x1b" not in out and "\x07" not in out and out.endswith("b\nc\n")


def test_ctrl_c_after_a_stop_does_not_say_that_the_job_goes_on(
    alray: Callable[..., Any], make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = make_cluster("RUNNING", BEGUN, 2)
    monkeypatch.setattr(
        "alray.submit.send.send", lambda *given, **options: type("Sent", (), {"id": "j", "result": "r"})
    )
    monkeypatch.setattr(submit, "_wants_to_stop", lambda streams: True)
    done = alray("submit", "spec.yaml", "--address", "head", "--json")
    assert (done.code, stand_in.stopped) == (130, 1)
    assert "a study ends its trials" in in_lines(done.err)
    assert "the job is being stopped; follow it with" in in_lines(done.err)
    assert "continues" not in done.err and "stop it with" not in done.err
    answer = json.loads(done.out)
    assert answer["job"]["id"] == "j"
