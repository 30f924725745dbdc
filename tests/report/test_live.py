"""The live page of a run, by HTTP and server-sent events: what it is told while a run goes on, and at its end."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pytest

from alray.core.errors import CheckpointError, RequestError
from alray.core.run_folder.records import Record, Writer, replace_file
from alray.planning.prediction.plan import Plan
from alray.report.folder import read_run
from alray.report.live import watch as watching
from alray.report.live.board import Board
from alray.report.live.following import Following
from alray.report.live.server import listen
from alray.report.live.watch import ending, watch
from alray.report.run_page import RunReport

from .test_page import summary_of

HOSTILE = "</script><script>alert(1)</script>"


class Going:
    """A run that a test writes step by step."""

    def __init__(self, given: ModuleType, folder: Path) -> None:
        self.plan: Plan = given.example_plan()
        self.records: list[Record] = given.example_records(self.plan)
        self.folder = given.write_run(folder, self.plan, [])
        (folder / "records.jsonl").unlink()
        self._given, self._written = given, 0

    def write(self, until: int, *more: Record) -> None:
        """Write the records up to this place, as a run does, and then more."""
        writer = Writer(self.folder / "records.jsonl")
        for record in (*self.records[self._written : until], *more):
            writer.write(record)
        writer.close()
        self._written = until

    def finish(self) -> None:
        """The end of a run: its last event, its summary, its report."""
        self.records += [self._given.event("finished", 40, 2.0)]
        self.write(len(self.records))
        summary = summary_of(self.plan, self.records, duration_s=2.1, report=str(self.folder / "report.html"))
        replace_file(self.folder / "summary.json", summary.model_dump_json())
        replace_file(self.folder / "report.html", RunReport(read_run(self.folder)).page())


@pytest.fixture
def going(given: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Going:
    monkeypatch.setattr(watching, "_EVERY_S", 0.02)
    monkeypatch.setattr(watching, "_SHARE", 1.0)
    return Going(given, tmp_path / "run")


@contextmanager
def watched(folder: Path) -> Iterator[str]:
    """The address of the page of a run, which has ended with the block."""
    with listen(0) as door:
        thread = Thread(target=watch, args=(Following(folder), door, Board()), daemon=True)
        thread.start()
        yield door.address
        thread.join(10)
        assert not thread.is_alive()


class Events:
    """What a page is told, from its opening on; `pieces` is what it shows then."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        self._connection.request("GET", f"{parts.path}events")
        self._answer = self._connection.getresponse()
        assert self._answer.headers["Content-Type"] == "text/event-stream"
        self.pieces: dict[str, Any] = {}

    def next(self) -> tuple[str, dict[str, Any]]:
        """The name of the next event and what it holds."""
        event = ""
        while line := self._answer.readline().decode():
            if line.startswith("event: "):
                event = line.removeprefix("event: ").strip()
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                if event == "pieces":
                    self.pieces |= data
                return event, data
        raise AssertionError("the stream ended")

    def until(self, text: str) -> None:
        while text not in self.pieces.get("standing", ""):
            assert self.next()[0] == "pieces"


def get(address: str, path: str = "", *, method: str = "GET", **headers: str) -> tuple[int, str]:
    """path: below the page, or with a slash at its beginning of the server."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    connection.request(method, path if path.startswith("/") else f"{parts.path}{path}", headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def figures_of(folder: Path) -> dict[str, list[dict[str, Any]]]:
    exhibits: Sequence[Any] = RunReport(read_run(folder)).exhibits
    return {f"rows {figure.name}": figure.rows for exhibit in exhibits for figure in exhibit.figures}


def test_a_page_follows_a_run_to_its_end(going: Going) -> None:
    with watched(going.folder) as address:
        status, frame = get(address)
        assert status == 200 and "Waiting for the first record of the run." in frame and "EventSource" in frame
        events = Events(address)
        going.write(15)
        events.until("mini-batch 10 of 40")
        first = dict(events.pieces)
        assert "of the final weights" not in first["content"]
        assert max(row["step"] for row in first["rows loss_associated"]) == 10
        going.write(28)
        _, told = events.next()
        assert "rows loss_associated" in told and "rows network" not in told  # what did not change is not sent again
        going.finish()
        events.until("finished")
        assert {name: rows for name, rows in events.pieces.items() if name.startswith("rows ")} == json.loads(
            json.dumps(figures_of(going.folder))
        )
        assert "of the final weights; validation 0.9100" in events.pieces["content"]
        name, end = events.next()
        assert (name, end["said"], end["path"]) == ("end", "The run has finished.", str(going.folder / "report.html"))
        assert end["report"] == (going.folder / "report.html").read_text()


def test_a_page_that_is_opened_later_sees_all(going: Going) -> None:
    going.write(30)
    with watched(going.folder) as address:
        first = Events(address)
        first.until("running")
        second = Events(address)
        second.until("running")
        assert set(second.pieces) == set(first.pieces)
        going.finish()
        for events in (first, second):
            events.until("finished")
            assert events.next()[0] == "end"


def test_only_its_two_paths_are_served_to_this_machine(going: Going) -> None:
    with watched(going.folder) as address:
        assert get(address, Host="localhost:1")[0] == get(address, Host="localhost:8000")[0] == 200
        assert get(address, Host="[::1]:80")[0] == 200
        for stranger in ("evil.example", "127.0.0.1.evil.example:80", "10.0.0.7", "", "[", "localhost:x:1@a"):
            assert get(address, Host=stranger)[0] == 403
            assert get(address, "events", Host=stranger)[0] == 403
        for path in (
            "/",
            "/events",
            f"{urlsplit(address).path[:-2]}/",
            "records.jsonl",
            "/records.jsonl",
            "/../spec.yaml",
            "/%2e%2e/spec.yaml",
            "//etc/passwd",
            "/report.html",
            "/favicon.ico",
        ):
            assert get(address, path)[0] == 404
        assert get(address, "events", **{"Sec-Fetch-Site": "cross-site"})[0] == 404  # from the page of another server
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            assert get(address, method=method)[0] == 501
        going.write(len(going.records))
        going.finish()


def test_the_port_of_another_program(going: Going) -> None:
    with listen(0) as taken, pytest.raises(RequestError) as refused:
        listen(taken.socket.getsockname()[1])
    assert "cannot be used: another program has it; choose another one, or leave out --port" in str(refused.value)
    with socket.socket() as outside, listen(0) as door:  # not on the other addresses of this machine
        outside.settimeout(1)
        with pytest.raises(OSError):
            outside.connect(("127.0.0.2", door.socket.getsockname()[1]))


def test_a_run_that_was_killed(going: Going) -> None:
    going.write(30)
    long_ago = time.time() - 3600
    for name in ("records.jsonl", "environment.json", "spec.yaml"):
        os.utime(going.folder / name, (long_ago, long_ago))
    following = Following(going.folder)
    following.read()
    assert following.state == "killed" and following.has_ended
    assert ending(following).startswith("It wrote nothing for 60 min")
    going.write(40)  # it goes on after all, or again
    following.read()
    assert following.state == "running"


def test_a_resumed_run_is_not_ended_by_its_earlier_summary(going: Going, given: ModuleType) -> None:
    going.write(15, given.event("interrupted", 10, 1.1))
    earlier = summary_of(going.plan, going.records, status="interrupted", duration_s=1.2)
    replace_file(going.folder / "summary.json", earlier.model_dump_json())
    following = Following(going.folder)
    following.read()
    assert following.state == "interrupted"
    going.write(28, given.event("resumed", 10, 1.3))
    following.read()
    assert following.state == "running"
    going.write(len(going.records), given.event("finished", 40, 2.0))
    following.read()
    assert following.state == "running"  # its own summary is still to come
    replace_file(going.folder / "summary.json", summary_of(going.plan, going.records, duration_s=2.1).model_dump_json())
    following.read()
    assert following.state == "finished"


def test_a_command_that_goes_on_is_not_ended_by_an_earlier_summary(going: Going) -> None:
    going.finish()
    gone = Event()
    following = Following(going.folder, gone=gone)
    following.read()
    assert following.state == "running" and not following.has_ended
    gone.set()
    following.read()
    assert following.state == "finished" and following.has_ended


def test_what_is_no_run_folder(tmp_path: Path, going: Going) -> None:
    with pytest.raises(CheckpointError, match="this is not a run folder"):
        Following(tmp_path)
    going.write(20)
    following = Following(going.folder)
    following.read()
    going.folder.rename(tmp_path / "away")
    with pytest.raises(CheckpointError, match="the run folder was deleted"):
        following.read()


def test_what_a_user_wrote_is_shown_and_not_run(going: Going, given: ModuleType) -> None:
    (going.folder / "spec.yaml").write_text(f"name: {json.dumps(HOSTILE)}\n")
    with watched(going.folder) as address:
        events = Events(address)
        going.write(30, given.event("warning", 10, 1.1, HOSTILE))
        events.until("running")
        assert HOSTILE not in events.pieces["content"]
        assert "&lt;/script&gt;&lt;script&gt;alert(1)" in events.pieces["content"]
        assert HOSTILE not in get(address)[1]
        going.finish()


def test_nothing_is_made_while_no_page_is_open(going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    pieces_of = watching.pieces_of
    monkeypatch.setattr(watching, "pieces_of", lambda following: made.append(following.state) or pieces_of(following))
    with watched(going.folder):
        going.write(30)
        time.sleep(0.1)
        going.finish()
    assert made == ["finished"]


def test_a_run_that_failed_says_why(going: Going, given: ModuleType) -> None:
    with watched(going.folder) as address:
        events = Events(address)
        failed = given.event("failed", 10, 1.1, HOSTILE)
        going.write(15, failed)
        summary = summary_of(going.plan, [*going.records[:15], failed], status="failed", duration_s=1.2)
        replace_file(going.folder / "summary.json", summary.model_dump_json())
        events.until("failed")
        name, end = events.next()
        assert (name, end["said"], end["report"]) == ("end", f"The run failed: {HOSTILE}", None)
