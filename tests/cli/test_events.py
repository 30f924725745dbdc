"""`--events`: another process shows a run as the run itself would, and a job's folder may be gone at its end."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from alray.api.console.display import PlainLines
from alray.api.console.interrupts import Interrupts
from alray.cli.event_lines import read_event
from alray.cli.job_view import JobView
from alray.cli.main import execute
from alray.cli.terminal import Terminal, shown
from alray.core.errors import RequestError, RunError
from alray.submit.dashboard import Job

from .conftest import TINY


def job(**given: Any) -> Job:
    return Job(**{"id": "j", "status": "FAILED", "message": "", "metadata": {}, "begun_s": 0.0, "ended_s": 1.0,
                  "exit_code": 1, "node": None} | given)  # fmt: skip


def viewed(text: str) -> tuple[JobView, str]:
    """What a person sees of a job's log."""
    streams = Terminal(as_json=False)
    out = streams.out = io.StringIO()
    view = JobView(streams, PlainLines(out, Interrupts()))
    for line in text.splitlines():
        view.line(line)
    return view, out.getvalue()


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run of the tiny spec prints."""
    folder = tmp_path_factory.mktemp("events")
    (folder / "x.yaml").write_text(TINY, encoding="utf-8")
    words = ["run", str(folder / "x.yaml"), "--inline", "--events", "--output", str(folder / "run")]
    with redirect_stdout(io.StringIO()) as out:
        assert execute(words) == 0
    return out.getvalue()


def test_events_show_what_the_run_shows(alray: Callable[..., Any], spec: Path, events: str) -> None:
    kinds = [event[0] for event in map(read_event, events.splitlines()) if event is not None]
    assert {"doing", "plan", "record", "answer", "fields"} <= set(kinds)
    view, text = viewed(events)
    assert view.answer["status"] == "finished" and view.answer["weights_sha256"] in text
    plain = alray("run", spec, "--inline", "--output", "out")
    for line in plain.err.splitlines():
        if line.startswith(("2 stages", "after mini-batch")):
            assert line.partition("predicted")[0] in text


def test_errors_arrive_whole(alray: Callable[..., Any], spec: Path) -> None:
    events = alray("run", spec, "run.epochs=-1", "--events")
    view, _ = viewed(events.out)
    assert events.code == 2
    assert [(problem.file, problem.key) for problem in view.problems] == [("command line", "run.epochs")]


def test_a_cluster_without_alray_is_told(alray: Callable[..., Any]) -> None:
    view, text = viewed("/usr/bin/python: No module named alray\nRunning entrypoint for job j: python -m alray\n")
    assert text == ""
    with pytest.raises(RequestError, match=r"cannot run alray: .*No module named alray; install alray"):
        view.require_begun(job())
    view, _ = viewed("")
    with pytest.raises(RequestError, match="the job did not begin: no room"):
        view.require_begun(job(message="no room", exit_code=None))


def test_another_version_may_write_what_is_unknown_here(events: str) -> None:
    changed = []
    for line in events.splitlines():
        event = json.loads(line)
        if "plan" in event:
            event["plan"]["news"] = 1
        if "record" in event:
            event["record"]["kind"] = "news"
        changed.append(json.dumps(event))
    versions = {"alray": "versions", "packages": {"alray": "99.0", "ray": "3"}, "host": "head"}
    view, text = viewed("\n".join([json.dumps(versions), *changed]))
    assert text.count("some of what alray 99.0 reports cannot be shown by alray") == 1
    assert "the cluster's alray 99.0 reads the spec" in text
    assert view.answer["status"] == "finished"
    with pytest.raises(RunError, match="a line that alray does not write"):
        viewed("\n".join(changed))


def test_lines_of_others_are_shown_as_they_are() -> None:
    begun = '{"alray": "doing", "what": "opening the data"}'
    for foreign in ("hello", '{"alray": "unknown"}', '{"alray": "plan'):
        assert viewed(f"before\n{begun}\n{foreign}\n")[1].endswith(f"opening the data\n{foreign}\n")


def test_a_path_is_shown_where_the_current_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert shown(tmp_path / "run") == str(tmp_path / "run")
