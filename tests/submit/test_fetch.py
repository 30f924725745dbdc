"""The folder of a job is packed on its node for as long as that takes, and arrives as it was."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import re
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

from alray.core.errors import RunError
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
    taken = iter([None, OSError(errno.ENOSPC, "No space left on device")])

    def full(*arguments: Any) -> None:
        if (error := next(taken)) is not None:
            raise error

    with_room = tarfile.copyfileobj  # type: ignore[attr-defined]
    monkeypatch.setattr(tarfile, "copyfileobj", full)
    with pytest.raises(RunError, match="the folder could not be written: No space left on device; make room"):
        fetch(Cluster(logs), job(folder), Path(), print)
    assert not list(here.iterdir())
    monkeypatch.setattr(tarfile, "copyfileobj", with_room)
    fetch(Cluster(logs), job(folder), Path(), print)
    assert {path.name for path in here.iterdir()} == {"records.jsonl", "summary.json"}
    assert {path.name for path in tmp_path.iterdir()} == {"run", "logs", "here"}
    with pytest.raises(RunError, match="the folder could not be written: "):
        fetch(Cluster(logs), job(folder), here / "summary.json" / "below", print)


class Hostile(Cluster):
    """A cluster that answers as it likes. packed: the bytes that it sends. offer: what its job says of them; None: the
    truth."""

    def __init__(self, logs: Path, packed: bytes, offer: str | None = None) -> None:
        super().__init__(logs)
        self.stopped = False
        self._packed = packed
        true = {"alray": "offer", "file": "x", "bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}
        self._offer = json.dumps(true) if offer is None else offer

    def submit(self, job_id: str, command: str, metadata: Any, **options: Any) -> None:
        pass

    def job(self, job_id: str) -> Job:
        return Job(job_id, "STOPPED" if self.stopped else "RUNNING", "", {}, None, None, None, None)

    def log(self, job_id: str) -> str:
        return '{"alray": "offer", "begun": true}\n' + self._offer + "\n"

    def file(self, node: str, name: str) -> Iterator[bytes]:
        for start in range(0, len(self._packed), 4096):
            self.sent = start
            yield self._packed[start : start + 4096]

    def stop(self, job_id: str) -> None:
        self.stopped = True


def tar_of(*entries: tuple[str, bytes, str], size: int = 0) -> bytes:
    """A tar file of entries: name, type and where a link leads. size: of each file, in bytes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as packed:
        for name, kind, leads in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, leads, size if kind == tarfile.REGTYPE else 0
            packed.addfile(entry, io.BytesIO(bytes(entry.size)))
    return made.getvalue()


FILE, FOLDER = tarfile.REGTYPE, tarfile.DIRTYPE


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (tar_of(("../escaped", FILE, "")), "outside the destination"),
        (tar_of(("a", FOLDER, ""), ("a/../../escaped", FILE, "")), "outside the destination"),
        (tar_of(("a", tarfile.SYMTYPE, ".."), ("a/escaped", FILE, "")), "`a` is neither a file nor a folder"),
        (tar_of(("x", FILE, ""), ("a", tarfile.LNKTYPE, "x")), "`a` is neither a file nor a folder"),
        (tar_of(("a", tarfile.CHRTYPE, "")), "`a` is neither a file nor a folder"),
        (tar_of(("a", tarfile.FIFOTYPE, "")), "`a` is neither a file nor a folder"),
        (tar_of(("a" * 2_000_000, FILE, "")), "could not be written: File name too long"),
        (b"no tar file" * 1000, "it cannot be read"),
    ],
)
def test_what_a_stranger_packed_stays_in_the_folder(tmp_path: Path, packed: bytes, said: str) -> None:
    target = tmp_path / "runs" / "here"
    with pytest.raises(RunError, match=re.escape(said)):
        fetch(Hostile(tmp_path, packed), job(tmp_path), target, print)
    assert [path.name for path in tmp_path.rglob("*")] in (["runs"], ["runs", "here"])


def test_an_absolute_path_is_one_in_the_folder(tmp_path: Path) -> None:
    fetch(Hostile(tmp_path, tar_of(("/tmp/a", FILE, ""))), job(tmp_path), tmp_path / "here", print)
    assert (tmp_path / "here" / "tmp" / "a").is_file()


def test_no_more_is_taken_than_was_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed, target = tar_of(("a", FILE, ""), size=1_000_000), tmp_path / "runs" / "here"
    offer = {"alray": "offer", "file": "x", "bytes": 1000, "sha256": hashlib.sha256(packed[:1000]).hexdigest()}
    cluster = Hostile(tmp_path, packed, json.dumps(offer))
    with pytest.raises(RunError, match="more than the announced 1,000 bytes came"):
        fetch(cluster, job(tmp_path), target, print)
    assert cluster.sent == 0, "the connection ends at once"
    for line in (
        '{"alray": "offer", "file": ',
        '{"alray": "offer", "file": 3}',
        '{"alray": "offer", "file": "x", "bytes": []}',
        '{"alray": "offer", "failed": {"messages": 1}}',
        '{"alray": "offer", "file": ' + "[" * 100_000,
    ):
        with pytest.raises(RunError, match="wrote a line that alray does not write"):
            fetch(Hostile(tmp_path, packed, line), job(tmp_path), target, print)
    with pytest.raises(RunError, match=r"the folder needs 2,000 TB while it is unpacked, and .* are free"):
        fetch(Hostile(tmp_path, packed, json.dumps(offer | {"bytes": 10**15})), job(tmp_path), target, print)
    assert not list((tmp_path / "runs").iterdir())


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
    assert "needs 12.0 kB besides Ray's logs" in failed["message"] and "10.0 kB are free" in failed["message"]
    assert failed["hint"] == f"make room on the disk of {tmp_path}"
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
    assert failed["hint"] == "correct the cause there, and fetch again"
