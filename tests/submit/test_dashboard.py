"""The address and the token are checked within seconds; a log that is sent again is shown once."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

from alray.core.errors import ConnectionLost, RequestError
from alray.submit import dashboard as dashboard_module
from alray.submit import follow as follow_module
from alray.submit.dashboard import Dashboard, Job, url_of
from alray.submit.follow import Log, follow

TOKEN = "the-token"
OF_WEBSOCKETS = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
FRAME_OF_NO_KIND = b"\x83\x00"


class Answers(BaseHTTPRequestHandler):
    """A dashboard that knows no job and wants a token, or something else with `is_other`."""

    protocol_version = "HTTP/1.1"
    is_other = False
    asked: ClassVar[dict[str, list[str]]]  # the query of the last download
    slow_s = 0.0  # until an upload is answered; 0: the connection breaks instead

    def do_PUT(self) -> None:
        time.sleep(self.slow_s)
        self.close_connection = True

    def do_GET(self) -> None:
        given = self.headers.get("Authorization")
        if self.is_other:
            self._answer(200, b"<html>hello</html>")
        elif given is None:
            self._answer(401, b"")
        elif given != f"Bearer {TOKEN}":
            self._answer(403, b"")
        elif self.path == "/api/jobs/behind-a-proxy":
            self._answer(503, b"")
        elif self.path.endswith("/logs/tail"):
            self._begin_websocket()
            self.wfile.write(FRAME_OF_NO_KIND)
        elif self.path.startswith("/api/v0/logs/file"):
            Answers.asked = parse_qs(urlsplit(self.path).query)
            self._answer(200, b"content")
        elif self.path == "/api/version":
            self._answer(200, json.dumps({"ray_version": "2.60.0"}).encode())
        else:
            self._answer(404, f"{self.path} does not exist".encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _begin_websocket(self) -> None:
        key = self.headers["Sec-WebSocket-Key"].encode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key + OF_WEBSOCKETS).digest()).decode())
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves a stand-in for a dashboard; returns its address."""
    servers = []

    def begin(kind: type[Answers] = Answers, *, is_other: bool = False) -> str:
        kind = type("Kind", (kind,), {"is_other": is_other})
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), kind))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_port}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The headers that Ray's client sends: it reads the token of the environment once in a process."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    sent = {"Authorization": f"Bearer {TOKEN}"}
    monkeypatch.setattr("ray.dashboard.modules.dashboard_sdk.get_auth_headers_if_auth_enabled", lambda given: sent)
    return sent


def refusal(address: str) -> str:
    began_s = time.monotonic()
    with pytest.raises(RequestError) as caught:
        Dashboard.open(address)
    assert time.monotonic() - began_s < 8
    return str(caught.value)


def test_an_address_is_completed() -> None:
    assert url_of("head") == url_of("http://head:8265/") == "http://head:8265"
    assert url_of("10.0.0.1:99") == "http://10.0.0.1:99"
    assert url_of("https://ray.example.org") == "https://ray.example.org"
    for wrong in ("ray://head:10001", "http://", "head:port", ""):
        with pytest.raises(RequestError, match="is not the address of a dashboard"):
            url_of(wrong)


def test_the_token_is_asked_for(serve: Callable[..., str], token: dict[str, str]) -> None:
    address = serve()
    with pytest.raises(RequestError, match=r"refuses this: .* does not exist; `ray job list` lists its jobs"):
        Dashboard.open(address).job("x")
    for sent in ({"Authorization": "Bearer another"}, {}):
        token.clear()
        token.update(sent)
        assert "refuses this token, or asks for one and none was sent; set RAY_AUTH_MODE=token" in refusal(address)


class Babbles(Answers):
    """A dashboard whose lists are not those of Ray."""

    def do_GET(self) -> None:
        known = {"/api/version": b'{"ray_version": "2"}', "/api/jobs/": b'[{"submission_id": "x"}]'}
        known |= {"/api/jobs/x/logs": b"[]", "/api/jobs/text": b"no JSON"}
        self._answer(200, known.get(self.path, b'{"data": []}'))


def test_answers_of_another_form_are_one_error(serve: Callable[..., str]) -> None:
    dashboard = Dashboard.open(serve(Babbles))
    asked = [dashboard.jobs, dashboard.nodes, lambda: dashboard.log("x")]
    asked += [lambda name=name: dashboard.job(name) for name in ("text", "y")]
    for ask in asked:
        with pytest.raises(RequestError, match="is not the dashboard of a Ray cluster"):
            ask()


@pytest.mark.full
def test_what_is_no_dashboard_is_told(serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard_module, "_ANSWER_S", 1.0)
    assert "is not the dashboard of a Ray cluster" in refusal(serve(is_other=True))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*silent.getsockname())
        assert f"no dashboard answers at http://{address}" in refusal(address)
        silent.listen()  # and never answers
        assert f"no dashboard answers at http://{address}" in refusal(address)
    assert "no dashboard answers at http://no-such-host.invalid:8265" in refusal("no-such-host.invalid")


def test_a_dashboard_that_goes_is_an_error_of_its_own(serve: Callable[..., str]) -> None:
    dashboard = Dashboard.open(serve())
    with pytest.raises(ConnectionLost, match="no longer answers"):
        dashboard.job("behind-a-proxy")
    dashboard._client._address = "http://127.0.0.1:1"
    with pytest.raises(ConnectionLost, match="no longer answers"):
        dashboard.job("x")
    with pytest.raises(ConnectionLost):
        dashboard.tail("x", print)


def test_a_download_may_take_a_day(serve: Callable[..., str]) -> None:
    assert b"".join(Dashboard.open(serve()).file("n", "f.tar")) == b"content"
    assert Answers.asked["timeout"] == ["86400"], "Ray's limit is 30 s"


def test_a_log_that_breaks_is_a_lost_connection(serve: Callable[..., str]) -> None:
    log = Log(print)
    with pytest.raises(ConnectionLost, match="no longer answers"):
        Dashboard.open(serve()).tail("x", log.take)


@pytest.mark.few
@pytest.mark.parametrize("slow_s", [0.0, 2.0], ids=["the connection breaks", "nothing is answered"])
def test_an_upload_that_fails_is_one_error(
    slow_s: float,
    serve: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(dashboard_module, "_ANSWER_S", 0.5)
    (tmp_path / "package.zip").write_bytes(b"PK\5\6" + bytes(18))
    dashboard = Dashboard.open(serve(type("Slow", (Answers,), {"slow_s": slow_s})))
    with pytest.raises(ConnectionLost, match="no longer answers; look at the job with `ray job list`"):
        dashboard.submit("j", "true", {}, runtime_env={"working_dir": str(tmp_path / "package.zip")}, node=None)
    assert not logging.getLogger("ray.dashboard.modules.dashboard_sdk").isEnabledFor(logging.INFO), "Ray says nothing"


def test_a_stop_reaches_a_command_that_has_just_begun(
    serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray signals the shell and its children. A shell that is just starting a child would lose that, so it has none."""
    asked: dict[str, object] = {}
    client = SimpleNamespace(submit_job=lambda **given: asked.update(given))
    monkeypatch.setattr(dashboard_module, "_client", lambda url: client)
    Dashboard.open(serve()).submit("j", "sleep 20", {}, runtime_env={}, node=None)
    with subprocess.Popen(str(asked["entrypoint"]), shell=True) as shell:
        until_s = time.monotonic() + 5
        while (name := psutil.Process(shell.pid).name()) != "sleep" and time.monotonic() < until_s:
            time.sleep(0.01)
        shell.kill()
    assert name == "sleep"


def test_each_lost_connection_has_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_s = 0.0

    def pass_time(seconds: float) -> None:
        nonlocal clock_s
        clock_s += seconds

    monkeypatch.setattr(follow_module, "time", SimpleNamespace(monotonic=lambda: clock_s, sleep=pass_time))

    class Breaking:
        """Its connection breaks every three minutes, and at last nothing answers."""

        url = "http://head"
        left = 5

        def tail(self, job_id: str, take: Callable[[str], None]) -> None:
            if self.left:
                self.left -= 1
                take("line\n")
                pass_time(180)
            raise ConnectionLost("gone")

        def job(self, job_id: str) -> Job:
            raise ConnectionLost("gone")

    notes: list[str] = []
    with pytest.raises(ConnectionLost):
        follow(Breaking(), "j", Log(lambda line: None), note=notes.append)  # type: ignore[arg-type]
    assert len(notes) == 5
    assert 5 * 180 + 300 < clock_s < 5 * 180 + 320


def test_a_new_cluster_at_the_address_is_told_at_once(serve: Callable[..., str]) -> None:
    """The head was started again: its dashboard answers, and knows nothing of the job."""
    notes: list[str] = []
    with pytest.raises(RequestError, match=r"does not exist.*`alray submit --resume /shared/j`"):
        follow(Dashboard.open(serve()), "j", Log(print), folder="/shared/j", note=notes.append)
    assert len(notes) == 1


def test_a_new_cluster_with_another_token_names_the_folder(serve: Callable[..., str]) -> None:
    """The dashboard that was followed had this token; the one that answers now has another."""
    dashboard = Dashboard.open(serve())
    dashboard._client._headers = {"Authorization": "Bearer of-the-old-cluster"}
    with pytest.raises(RequestError, match=r"refuses this token.*`alray submit --resume /shared/j`"):
        follow(dashboard, "j", Log(print), folder="/shared/j", note=lambda line: None)


def test_a_log_that_is_sent_again_is_given_once() -> None:
    lines: list[str] = []
    log = Log(lines.append)
    for pieces in (["a\nb", "c\nd"], ["a\n", "bc\nde\nf"]):
        log.begin()
        for piece in pieces:
            log.take(piece)
    log.end()
    assert lines == ["a", "bc", "de", "f"]
