"""What object storage has no rename, no append and no folders for: claiming a folder, files that grow, messages."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alray.cli.main import execute
from alray.errors import RequestError, RunError
from alray.storage.appended import Appended, appending, on_a_disk, opened_log, was_appended
from alray.storage.location import location_of
from alray.storage.objects import ObjectPath
from alray.store import make_run_dir
from alray.study.listing import listed


def test_of_several_runs_that_begin_at_once_one_has_the_folder(bucket: str) -> None:
    def claim(_: int) -> str | None:
        try:
            make_run_dir("run", location_of(f"{bucket}/run"))
        except RequestError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(4) as runs:
        refused = [message for message in runs.map(claim, range(4)) if message is not None]
    assert len(refused) == 3
    assert all("the run folder is not empty" in message for message in refused)


def test_several_writers_append_to_one_file(bucket: str) -> None:
    file = ObjectPath(f"{bucket}/run/records.jsonl")
    assert not was_appended(file)
    reader = Appended(file)
    with appending(file) as one, appending(file) as other:
        for writer, text in ((one, "1\n"), (other, "2\n"), (one, "3\n")):
            writer.write(text)
            writer.flush()
            assert reader.lines() == [text.strip().encode()]
        other.write("4\n")
    assert Appended(file).lines() == [b"1", b"2", b"3", b"4"]
    assert [part.name for part in file.parent.glob("*")] == ["records"]
    assert [part.name for part in (file.parent / "records").glob("*")] == [f"00000{n}.jsonl" for n in (1, 2, 3, 4)]


def test_a_part_whose_answer_was_lost_is_written_once(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is sent again, and finds the object that it made."""
    create = ObjectPath.create
    monkeypatch.setattr(ObjectPath, "create", lambda self, content: create(self, content) and create(self, content))
    file = ObjectPath(f"{bucket}/run/records.jsonl")
    with appending(file) as writer:
        writer.write("once\n")
    assert Appended(file).lines() == [b"once"]


def test_a_log_holds_what_any_process_prints(bucket: str) -> None:
    file = ObjectPath(f"{bucket}/run/logs/stage-0.log")
    with opened_log(file) as descriptor:
        subprocess.run(["printf", "caf\\303\\251\\n"], stdout=descriptor, check=True)
        os.write(descriptor, b"more\n")
    assert Appended(file).lines() == ["café".encode(), b"more"]


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("runs/one", Path("runs/one")),
        ("file:///shared/a%20run", Path("/shared/a run")),
        ("s3://bucket/a/run/", ObjectPath("s3://bucket/a/run")),
    ],
)
def test_a_url_names_a_location(text: str, location: object) -> None:
    assert location_of(text) == location


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s4://bucket/run", "s4://bucket/run: this is no folder on object storage; name one as s3://bucket/folder"),
        ("s3://bucket", "s3://bucket: this is no folder on object storage"),
        ("s3:/bucket/x", "s3:/bucket/x: this URL has one slash after its scheme; write s3://bucket/x"),
        ("file:/shared/x", "file:/shared/x: this URL has one slash after its scheme; write file:///shared/x"),
    ],
)
def test_what_is_no_folder_is_refused(url: str, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        make_run_dir("run", location_of(url))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("command", ["resume", "report", "compare", "evaluate", "predict", "reproduce", "list"])
def test_a_url_with_one_slash_is_refused_by_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command, "s3:/bucket/x", *(["picture.png"] if command == "predict" else [])]
    assert execute(words) == 2
    told = capsys.readouterr().err
    assert "s3:/bucket/x" in told and "write s3://bucket/x" in told


def test_a_bucket_that_does_not_exist_is_named(bucket: str) -> None:
    with pytest.raises(RunError, match=r"^s3://nowhere/run: .*404 Not Found; check the bucket"):
        make_run_dir("run", location_of("s3://nowhere/run"))


def test_a_server_that_does_not_answer_is_named_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        began_s = time.monotonic()
        with pytest.raises(RunError, match=r"s3://silent/run.*: the object storage did not do what it was asked"):
            make_run_dir("run", location_of("s3://silent/run"))
        assert time.monotonic() - began_s < 15.0


def test_runs_on_object_storage_are_listed(bucket: str) -> None:
    runs = location_of(f"{bucket}/runs")
    (runs / "one" / "spec.yaml").write_bytes(b"name: one\nmethod: {kind: backpropagation}\n")
    (runs / "two" / "summary.json").write_bytes(b"{}")
    (runs / "notes.txt").write_bytes(b"mine")
    rows = {row.folder.rpartition("/")[2]: row for row in listed([runs])}
    assert (rows["one"].name, rows["one"].method, rows["one"].state) == ("one", "backpropagation", "unfinished")
    assert rows["two"].state == "damaged"
    assert set(rows) == {"one", "two"}


def test_a_checkpoint_that_is_deleted_while_it_is_copied(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ObjectPath(f"{bucket}/run")
    old, new = (folder / "checkpoints" / f"step-0000000{step}" for step in (1, 2))
    for name in ("component-00.safetensors", "component-01.safetensors", "manifest.json"):
        for checkpoint in (old, new):
            (checkpoint / name).write_bytes(b"content")
    read = ObjectPath.read_bytes

    def deleting(file: ObjectPath) -> bytes:
        content = read(file)
        (old / "manifest.json").unlink(missing_ok=True)  # in the order of `prune`
        old.remove()
        return content

    monkeypatch.setattr(ObjectPath, "read_bytes", deleting)
    with on_a_disk(folder) as copy:
        copied = sorted(path.relative_to(copy / "checkpoints").as_posix() for path in copy.rglob("*.*"))
    assert copied == [
        "step-00000001/component-00.safetensors",  # it had been read before; without a manifest it is no checkpoint
        *(
            f"step-00000002/{name}"
            for name in ("component-00.safetensors", "component-01.safetensors", "manifest.json")
        ),
    ]
