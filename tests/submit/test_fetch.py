"""The folder of a job is packed on its node for as long as that takes, and arrives as it was."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alray.errors import RunError
from alray.submit import fetch as fetch_module
from alray.submit import offer
from alray.submit.dashboard import Dashboard, Job
from alray.submit.fetch import fetch


class Cluster(Dashboard):
    """A cluster whose jobs are processes of this machine, with one log in a folder.

    slow: the number of looks at the log until the packed folder is in it. A minute of `clock_s` passes at each of them.
    """

    def __init__(self, logs: Path, slow: int = 0) -> None:
        super().__init__("http://nowhere")
        self._logs, self._slow = logs, slow
        self.clock_s = 0.0

    def submit(
        self, job_id: str, command: str, metadata: Mapping[str, str], *, runtime_env: dict[str, Any], node: str | None
    ) -> None:
        python, *words = shlex.split(command)
        assert (python, node) == ("python", "node")
        with (self._logs / "log").open("w") as log:
            self._process = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)

    def job(self, job_id: str) -> Job:
        status = "RUNNING" if self._process.poll() is None else "FAILED"
        return Job(job_id, status, "", {}, None, None, None, None)

    def log(self, job_id: str) -> str:
        text = (self._logs / "log").read_text()
        if '"file"' not in text or self._slow == 0:
            return text
        self._slow -= 1
        self.clock_s += 60
        return "".join(line for line in text.splitlines(keepends=True) if '"file"' not in line)

    def file(self, node: str, name: str) -> Iterator[bytes]:
        yield (self._logs / name).read_bytes()

    def stop(self, job_id: str) -> None:
        self._process.terminate()
        self._process.wait()


def job(folder: Path) -> Job:
    return Job("j", "RUNNING", "", {"result": str(folder)}, None, None, None, "node")


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The last line of the job that packs."""
    line: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return line


def test_packing_may_take_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, logs = tmp_path / "run", tmp_path / "logs"
    cluster = Cluster(logs, slow=10)
    clock = SimpleNamespace(monotonic=lambda: cluster.clock_s, sleep=lambda seconds: time.sleep(0.02))
    monkeypatch.setattr(fetch_module, "time", clock)
    logs.mkdir()
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "weights").write_bytes(bytes(10_000))
    (folder / "records.jsonl").write_text("{}")
    fetched = fetch(cluster, job(folder), tmp_path / "here", print)
    assert cluster.clock_s == 600
    for name in ("records.jsonl", "checkpoints/weights"):
        assert (fetched.folder / name).read_bytes() == (folder / name).read_bytes()
    assert [path.name for path in logs.iterdir()] == ["log"], "the packed folder is deleted"
    with pytest.raises(
        RunError, match=r"ID: there is no folder `.*nothing` on .*; if the job ended before it made one"
    ):
        fetch(Cluster(logs), job(tmp_path / "nothing"), tmp_path / "empty", print)


def test_half_a_folder_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, logs, here = tmp_path / "run", tmp_path / "logs", tmp_path / "here"
    for made in (folder, logs, here):
        made.mkdir()
    (folder / "records.jsonl").write_text("{}")
    (folder / "summary.json").write_text("{}")
    monkeypatch.chdir(here)
    whole = tarfile.TarFile.extractall

    def full(packed: tarfile.TarFile, target: Path, **options: Any) -> None:
        whole(packed, target, members=packed.getmembers()[:1], **options)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(RunError, match="the folder could not be written: No space left on device; make room"):
        fetch(Cluster(logs), job(folder), Path(), print)
    assert not list(here.iterdir())
    monkeypatch.setattr(tarfile.TarFile, "extractall", whole)
    fetch(Cluster(logs), job(folder), Path(), print)
    assert {path.name for path in here.iterdir()} == {"records.jsonl", "summary.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"run", "logs", "here"}
    with pytest.raises(RunError, match="the folder could not be written: "):
        fetch(Cluster(logs), job(folder), here / "summary.json" / "below", print)


def test_room_is_asked_for_before_anything_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "weights").write_bytes(bytes(10_000))
    archive = tmp_path / "packed.tar"
    monkeypatch.setattr(shutil, "disk_usage", lambda disk: SimpleNamespace(free=10_000))
    monkeypatch.setattr(offer, "_pack", None)
    assert offer.main(archive, tmp_path / "run") == 1
    failed = said(capsys)["failed"]
    assert "needs 12.0 kB beside Ray's logs" in failed["message"] and "10.0 kB are free" in failed["message"]
    assert failed["mend"] == f"make room on the disk of {tmp_path}"
    assert not archive.exists()


def test_a_file_that_shrinks_while_it_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shrunk(folder: Path, target: object) -> None:
        raise OSError("unexpected end of data")  # as tarfile raises it

    monkeypatch.setattr(offer, "_pack", shrunk)
    assert offer.main(tmp_path / "packed.tar", tmp_path) == 1
    failed = said(capsys)["failed"]
    assert failed["message"].endswith(": unexpected end of data")
    assert failed["mend"] == "mend the cause there, and fetch again"
