"""What object storage has no rename, no append and no folders for: claiming a folder, files that grow, messages."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread, Timer
from typing import ClassVar

import pytest
from obstore.store import LocalStore

from alray.cli.main import execute
from alray.config.user_code import UserCode
from alray.core.errors import RequestError, RunError
from alray.core.run_folder.data_identity import DataIdentity
from alray.core.run_folder.store import checkpoint_folder, make_run_dir, mark, prune, require_own, write_manifest
from alray.core.storage import objects
from alray.core.storage.appended import appending, on_a_disk, opened_log, was_appended, whole_lines
from alray.core.storage.location import location_of
from alray.core.storage.objects import ObjectPath
from alray.runtime.stage.checkpoint import write_file
from alray.studies.listing import rows_in


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


def test_a_run_sees_that_another_process_goes_on_with_it(bucket: str) -> None:
    run = location_of(f"{bucket}/run")
    mark(run, "ours")
    require_own(run, "ours")
    mark(run, "theirs")
    with pytest.raises(RunError, match="another process has started to continue this run"):
        require_own(run, "ours")
    (run / ".run").unlink(missing_ok=True)
    require_own(run, "ours")  # where the folder is deleted, the run goes on


@pytest.mark.full
def test_a_storage_that_is_away_for_seconds_is_waited_for(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.server import ThreadedMotoServer

    first = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    first.start()
    host, port = first.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    file = ObjectPath(f"{bucket}/run/plan.json")
    file.write_bytes(b"before")
    first.stop()
    again = ThreadedMotoServer(ip_address="127.0.0.1", port=port)
    later = Timer(2.0, again.start)
    later.start()
    file.write_bytes(b"after")
    assert not later.is_alive() and file.read_bytes() == b"after"
    again.stop()


@pytest.fixture
def ctrl_c_each_second() -> Iterator[Event]:
    """Somebody presses Ctrl-C until the event is set: what is pressed while obstore is at work may count only once."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    heard = Event()

    def press() -> None:
        while not heard.wait(1.0):
            os.kill(os.getpid(), signal.SIGINT)

    presser = Thread(target=press, daemon=True)
    presser.start()
    yield heard
    heard.set()
    presser.join()
    signal.signal(signal.SIGINT, before)


@pytest.mark.full
def test_ctrl_c_is_heard_while_a_storage_is_away(ctrl_c_each_second: Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore does not hear it, so it must not be requested to wait for long."""
    monkeypatch.setattr(objects, "_bucket", objects._bucket.__wrapped__)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
        monkeypatch.setattr(objects, "_patience_s", {"s3://away": 300.0})
        began_s = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ObjectPath("s3://away/object").read_bytes()
        ctrl_c_each_second.set()
        with pytest.raises(RunError):
            ObjectPath("s3://away/object").write_bytes(b"what the end of a run writes")
        assert time.monotonic() - began_s < 60.0


class _Breaking(BaseHTTPRequestHandler):
    """Ends each connection once without an answer, before it answers a request of this kind."""

    broken: ClassVar[set[str]] = set()

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.command not in self.broken:
            self.broken.add(self.command)
            self.close_connection = True
            return
        deleted = b"<DeleteResult><Deleted><Key>object</Key></Deleted></DeleteResult>"
        answer = {"POST": deleted, "GET": b"1"}.get(self.command, b"")
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *words: object) -> None:
        """Nothing is told."""


def test_a_request_whose_answer_was_lost_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore does so for requests that only read or replace an object."""
    monkeypatch.setattr(objects, "_AGAIN_S", 0.01)
    monkeypatch.setattr(objects, "_bucket", objects._bucket.__wrapped__)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Breaking)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    file = ObjectPath("s3://breaking/object")
    assert file.read_bytes() == b"1"
    assert file.create(b"content")
    file.unlink(missing_ok=True)
    assert {"GET", "PUT"} < _Breaking.broken
    server.shutdown()


def test_a_folder_that_is_copied_by_hand_keeps_its_records(bucket: str, tmp_path: Path) -> None:
    """From object storage to a disk, on which the run goes on, and back to the same folder."""
    stored, file = ObjectPath(f"{bucket}/run/records.jsonl"), tmp_path / "records.jsonl"
    with appending(stored) as writer:
        writer.write("1\n")
        writer.flush()
        writer.write("2\n")
    copy_folder(stored.parent, tmp_path)
    assert was_appended(file) and whole_lines(file) == [b"1", b"2"]
    with appending(file) as writer:
        writer.write("3\n")
        assert whole_lines(file) == [b"1", b"2", b"3"]
    assert file.read_text() == "1\n2\n3\n" and not list((tmp_path / "records").glob("*"))
    stored.write_bytes(file.read_bytes())
    assert whole_lines(stored) == [b"1", b"2", b"3"]
    with appending(stored) as writer:
        writer.write("4\n")
    with on_a_disk(stored.parent) as copy:
        for each in (stored, copy / "records.jsonl"):
            assert was_appended(each) and whole_lines(each) == [b"1", b"2", b"3", b"4"]


def test_parts_of_a_log_that_say_the_same_are_all_copied(bucket: str) -> None:
    log = ObjectPath(f"{bucket}/run/logs/stage-0.log")
    for _ in range(3):
        with appending(log) as writer:
            writer.write("a warning\n")
    with on_a_disk(log.parent) as copy:
        assert (copy / "stage-0.log").read_text() == "a warning\n" * 3


def copy_folder(folder: ObjectPath, to: Path) -> None:
    """As `aws s3 cp --recursive`."""
    for name in folder.below():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes((folder / name).read_bytes())


def test_a_run_that_another_process_goes_on_with_writes_no_more_records(bucket: str) -> None:
    run = location_of(f"{bucket}/run")
    mark(run, "ours")
    with appending(run / "records.jsonl", lambda: require_own(run, "ours")) as records:
        records.write("1\n")
        records.flush()
        mark(run, "theirs")
        with appending(run / "records.jsonl", lambda: require_own(run, "theirs")) as others:
            others.write("2\n")
        records.write("3\n")
        with pytest.raises(RunError, match="another process has started to continue this run"):
            records.flush()
        mark(run, "ours")  # so that the file can be closed
        assert whole_lines(run / "records.jsonl") == [b"1", b"2"]


def test_pruning_sends_few_requests(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 20 to 50 ms, and the run goes on with its next checkpoint only then."""
    run = ObjectPath(f"{bucket}/run")
    data = DataIdentity(train=1, validation=1, shape=(1,), classes="", words=None, contents=None)
    for step in (1, 2, 3, 4):
        file = write_file(checkpoint_folder(run, step), "component-00.safetensors", b"content")
        newest = write_manifest(
            run, step=step, epoch=0.0, samples=0, partition=[1], files=[file], environment={}, data=data
        )
    (checkpoint_folder(run, 4) / "manifest.json").unlink(missing_ok=True)  # as a list that lags behind has it
    requested: list[str] = []
    send = ObjectPath._request
    monkeypatch.setattr(ObjectPath, "_request", lambda self, request: requested.append(self.url) or send(self, request))
    prune(run, 2, newest)
    assert len(requested) == 4, requested
    assert sorted({name.partition("/")[0] for name in (run / "checkpoints").below()}) == [
        f"step-0000000{step}" for step in (2, 3, 4)
    ]


def test_several_writers_append_to_one_file(bucket: str) -> None:
    file = ObjectPath(f"{bucket}/run/records.jsonl")
    assert not was_appended(file)
    with appending(file) as one, appending(file) as other:
        for writer, text in ((one, "1\n"), (other, "2\n"), (one, "3\n")):
            writer.write(text)
            writer.flush()
            assert whole_lines(file)[-1] == text.strip().encode()
        other.write("4\n")
    assert whole_lines(file) == [b"1", b"2", b"3", b"4"]
    assert [part.name for part in file.parent.glob("*")] == ["records"]
    assert [part.name for part in (file.parent / "records").glob("*")] == [f"00000{n}.jsonl" for n in (1, 2, 3, 4)]


def test_a_part_whose_answer_was_lost_is_written_once(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is sent again, and finds the object that it made."""
    create = ObjectPath.create
    monkeypatch.setattr(ObjectPath, "create", lambda self, content: create(self, content) and create(self, content))
    file = ObjectPath(f"{bucket}/run/records.jsonl")
    with appending(file) as writer:
        writer.write("once\n")
    assert whole_lines(file) == [b"once"]


def test_a_log_holds_what_any_process_prints(bucket: str) -> None:
    file = ObjectPath(f"{bucket}/run/logs/stage-0.log")
    with opened_log(file, print) as descriptor:
        subprocess.run(["printf", "caf\\303\\251\\n"], stdout=descriptor, check=True)
        os.write(descriptor, b"more\n")
    assert whole_lines(file) == ["café".encode(), b"more"]


def test_a_log_that_the_storage_does_not_take_fails_nothing(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ObjectPath(f"{bucket}/run/logs/stage-0.log")
    create, told = ObjectPath.create, []

    def refused(self: ObjectPath, content: bytes) -> bool:
        raise RunError("no", file=self.url)

    monkeypatch.setattr("alray.core.storage.appended._COPY_S", 0.01)
    with opened_log(file, told.append) as descriptor:
        monkeypatch.setattr(ObjectPath, "create", refused)
        os.write(descriptor, b"one\n")
        end_s = time.monotonic() + 10
        while not told and time.monotonic() < end_s:
            time.sleep(0.01)
        monkeypatch.setattr(ObjectPath, "create", create)
        os.write(descriptor, b"two\n")
    assert whole_lines(file) == [b"one", b"two"]
    with opened_log(file, told.append) as descriptor:
        monkeypatch.setattr(ObjectPath, "create", refused)
        os.write(descriptor, b"three\n")
    assert len(told) == 2 and "stage-0.log cannot be written, and the run continues without it" in told[1]


class _Slow(BaseHTTPRequestHandler):
    """Sends an object in 2 s, and after `/stalled` nothing more."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "20")
        self.send_header("Last-Modified", "Sat, 21 Nov 2026 12:00:00 GMT")
        self.end_headers()
        for _ in range(20):
            self.wfile.write(b".")
            time.sleep(5.0 if self.path.endswith("stalled") else 0.1)

    def log_message(self, format: str, *words: object) -> None:
        """Nothing is told."""


@pytest.mark.full
def test_a_slow_object_is_read_and_a_stalled_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit is 60 times shorter here."""
    monkeypatch.setattr(objects, "_PATIENCE_S", objects._PATIENCE_S / 60)
    for limits in (objects._CLIENT, objects._RETRIES):
        for name, value in list(limits.items()):
            if isinstance(value, timedelta):
                monkeypatch.setitem(limits, name, value / 60)
    monkeypatch.setattr(objects, "_bucket", objects._bucket.__wrapped__)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    server.daemon_threads = True
    monkeypatch.setattr(server, "handle_error", lambda *_: None)  # whoever requested has gone
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert ObjectPath("s3://any/object").read_bytes() == b"." * 20
    with pytest.raises(RunError):
        ObjectPath("s3://any/stalled").read_bytes()
    server.shutdown()


def test_what_somebody_else_deletes_meanwhile_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of this machine answers as Google's and Azure's storage: with an error for an object that is gone."""
    store = LocalStore(tmp_path)
    monkeypatch.setattr(objects, "_bucket", lambda root: store)
    folder = ObjectPath("gs://any/folder")
    for number in range(30):
        (folder / f"{number:02d}").write_bytes(b"1")
    below = ObjectPath.below

    def racing(self: ObjectPath) -> list[str]:
        names = below(self)
        for name in names[: len(names) // 2]:
            (folder / name).unlink(missing_ok=True)
            (folder / name).unlink(missing_ok=True)
        return names

    monkeypatch.setattr(ObjectPath, "below", racing)
    folder.remove()
    folder.remove()
    assert below(folder) == []


def test_own_code_comes_from_there_on_every_machine(bucket: str) -> None:
    """At a resume its folder is a copy that the machine of the driver has for a while."""
    kept = location_of(f"{bucket}/run/code")
    (kept / "stored_blocks.py").write_bytes(b"word = 1")
    code = UserCode(kept)
    sent = pickle.dumps(code)
    shutil.rmtree(code.root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        assert pickle.loads(sent)("python:stored_blocks.word") == 1
    del sys.modules["stored_blocks"]


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


@pytest.mark.full
def test_a_server_that_does_not_answer_is_named_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        began_s = time.monotonic()
        with pytest.raises(RunError, match=r"s3://silent/run.*: the object storage did not carry out the request"):
            make_run_dir("run", location_of("s3://silent/run"))
        assert time.monotonic() - began_s < 20.0


def test_runs_on_object_storage_are_listed(bucket: str) -> None:
    runs = location_of(f"{bucket}/runs")
    (runs / "one" / "spec.yaml").write_bytes(b"name: one\n")
    (runs / "two" / "summary.json").write_bytes(b"{}")
    (runs / "notes.txt").write_bytes(b"mine")
    rows = {row.folder.rpartition("/")[2]: row for row in rows_in([runs])}
    assert (rows["one"].name, rows["one"].state) == ("one", "unfinished")
    assert rows["two"].state == "damaged"
    assert set(rows) == {"one", "two"}
    (location_of(bucket) / "three" / "spec.yaml").write_bytes(b"name: three\n")
    assert [row.name for row in rows_in([location_of(bucket)])] == ["three"], "those in the bucket itself"


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
