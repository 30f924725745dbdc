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

from alray.report.live.beside import page_beside
from alray.report.live.server import listen

from .test_main import imported


def test_a_run_that_has_ended_is_told(alray: Callable[..., Any], ended: Path) -> None:
    said = alray("watch", ended)
    assert (said.code, said.err) == (0, "")
    assert said.out == f"The run has finished. Its report is {ended / 'report.html'}.\n"
    told = alray("watch", ended, "--json").json
    assert told == {"run_dir": str(ended), "state": "finished", "report": str(ended / "report.html")}


def test_wrong_requests(alray: Callable[..., Any], ended: Path, tmp_path: Path) -> None:
    said = alray("watch", tmp_path)
    assert said.code == 2 and "this is not a run folder: it has no spec.yaml" in said.err
    run = shutil.copytree(ended, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "summary.json"))
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(line for line in lines if '"finished"' not in line))
    with listen(0) as taken:
        port = taken.getsockname()[1]
        said = alray("watch", run, "--port", str(port))
    assert said.code == 2 and f"--port: port {port} cannot be used: another program has it" in said.err
    assert alray("watch", run, "--port", "65536").code == 2


def test_it_imports_neither_torch_nor_ray(python: Callable[[str], Any], ended: Path) -> None:
    assert imported(python, "torch|ray|pandas", "watch", ended) == []


def test_a_run_with_a_page_beside_it_ends_in_the_same_bits(alray: Callable[..., Any], spec: Path, ended: Path) -> None:
    said = alray("run", spec, "--inline", "--watch", "--json")
    assert said.code == 0
    assert said.json["weights_sha256"] == json.loads((ended / "summary.json").read_text())["weights_sha256"]
    (line,) = [line for line in said.err.splitlines() if "watch it at http://127.0.0.1:" in line]
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection(urlsplit(line.split()[-1]).netloc).connect()
    assert "the live page failed" not in said.err


@pytest.mark.parametrize("finished", [True, False])
def test_the_page_beside_a_run_says_how_it_ended(ended: Path, tmp_path: Path, finished: bool) -> None:
    """Without a summary its command was killed: the page hears of that at once."""
    run, notes = tmp_path / "run", list[str]()
    with page_beside(run, notes.append):
        connection = HTTPConnection(urlsplit(notes[0].split()[-1]).netloc, timeout=20)
        connection.request("GET", "/events")  # before there is anything
        shutil.copytree(ended, run, ignore=shutil.ignore_patterns("checkpoints", *(["summary.json"] * (not finished))))
        answer = connection.getresponse()
        while not (line := answer.readline()).startswith(b"data: "):
            assert line
        first = json.loads(line.removeprefix(b"data: "))
        assert "running" in first["standing"]  # an earlier summary is not the end of this command
    lines = answer.read().decode().splitlines()
    end = json.loads(lines[lines.index("event: end") + 1].removeprefix("data: "))
    assert end["said"] == (
        "The run has finished."
        if finished
        else "Its command ended without a summary: the run was killed. `alray resume` goes on from its last checkpoint."
    )
    assert notes == notes[:1]
