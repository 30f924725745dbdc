"""watch, and run --watch: what they print, and that the page beside a run ends with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from alray.report.live import watch as watching
from alray.report.live.board import Board
from alray.report.live.following import Following
from alray.report.live.page_process import page_process
from alray.report.live.server import listen

from .test_main import imported

NO_END = shutil.ignore_patterns("checkpoints", "tensorboard", "summary.json", "report.html")


def test_a_run_that_has_ended_is_told(alray: Callable[..., Any], ended: Path) -> None:
    said = alray("watch", ended)
    assert (said.code, said.err) == (0, "")
    assert said.out == f"The run has finished.\nreport  {ended / 'report.html'}\n"
    told = alray("watch", ended, "--json").json
    assert told == {"run_dir": str(ended), "state": "finished", "report": str(ended / "report.html")}


@pytest.fixture
def going_on(ended: Path, tmp_path: Path) -> Path:
    """The folder of a run before its end."""
    run = shutil.copytree(ended, tmp_path / "run", ignore=NO_END)
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(line for line in lines if '"finished"' not in line))
    return run


def test_a_run_is_watched_to_its_end(
    alray: Callable[..., Any], ended: Path, going_on: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(following: Following, board: Board) -> None:
        for name in ("records.jsonl", "summary.json", "report.html"):
            shutil.copyfile(ended / name, going_on / name)
        follow(following, board)

    follow = watching._follow
    monkeypatch.setattr(watching, "_follow", end)
    said = alray("watch", going_on)
    run, page, end, report = said.out.splitlines()
    assert said.code == 0 and run.split() == ["watching", str(going_on)]
    assert page.split()[0] == "page" and page.split()[1].startswith("http://127.0.0.1:")
    assert (end, report.split()) == ("The run has finished.", ["report", str(going_on / "report.html")])


def test_ctrl_c_leaves_the_run_alone(
    alray: Callable[..., Any], going_on: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(following: Following, board: Board) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watching, "_follow", interrupted)
    said = alray("watch", going_on)
    assert (said.code, said.err) == (130, "the run continues\n")


def test_wrong_requests(alray: Callable[..., Any], going_on: Path, tmp_path: Path) -> None:
    said = alray("watch", tmp_path)
    assert said.code == 2 and "this is not a run folder: it has no spec.yaml" in said.errors
    said = alray("watch", tmp_path / "nosuch")
    assert said.code == 2 and f"{tmp_path / 'nosuch'}: no such run folder" in said.errors
    with listen(0) as taken:
        port = taken.socket.getsockname()[1]
        said = alray("watch", going_on, "--port", str(port))
    assert said.code == 2 and f"--port: port {port} cannot be used: another program has it" in said.errors
    said = alray("watch", going_on, "--port", "65536")
    assert said.code == 2 and "--port: 65536 is no port; choose one from 1024 to 65535" in said.errors


@pytest.mark.full
def test_it_imports_neither_torch_nor_ray(python: Callable[[str], Any], ended: Path) -> None:
    assert imported(python, "torch|ray|pandas", "watch", ended) == []


@pytest.mark.full
def test_a_run_with_a_page_beside_it_ends_in_the_same_bits(alray: Callable[..., Any], spec: Path, ended: Path) -> None:
    said = alray("run", spec, "--inline", "--watch", "--json")
    assert said.code == 0
    assert said.json["weights_sha256"] == json.loads((ended / "summary.json").read_text())["weights_sha256"]
    (line,) = [line for line in said.err.splitlines() if "watch it at http://127.0.0.1:" in line]
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection(urlsplit(line.split()[-1]).netloc).connect()
    assert "the live page failed" not in said.err


@pytest.mark.full
def test_the_page_beside_a_run_that_is_killed_says_so_at_once(ended: Path, tmp_path: Path) -> None:
    run, notes = tmp_path / "run", list[str]()
    with page_process(run, True, notes.append):
        address = urlsplit(notes[0].split()[-1])
        connection = HTTPConnection(address.netloc, timeout=20)
        connection.request("GET", f"{address.path}events")  # before there is anything
        shutil.copytree(ended, run, ignore=NO_END)
        answer = connection.getresponse()
        while not (line := answer.readline()).startswith(b"data: "):
            assert line
        assert "running" in json.loads(line.removeprefix(b"data: "))["standing"]
    lines = answer.read().decode().splitlines()
    end = json.loads(lines[lines.index("event: end") + 1].removeprefix("data: "))
    assert "killed" in end["said"] and "`alray resume`" in end["said"]
    assert notes == notes[:1]
