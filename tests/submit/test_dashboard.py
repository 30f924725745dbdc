"""The address and the token are checked within seconds; a log that is sent again is shown once."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from alray.errors import ConnectionLost, RequestError
from alray.submit.dashboard import Dashboard, url_of
from alray.submit.follow import Log

TOKEN = "the-token"


class Answers(BaseHTTPRequestHandler):
    """A dashboard that knows no job and wants a token, or something else with `is_other`."""

    is_other = False

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
        elif self.path == "/api/version":
            self._answer(200, json.dumps({"ray_version": "2.60.0"}).encode())
        else:
            self._answer(404, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves a stand-in for a dashboard; returns its address."""
    servers = []

    def begin(*, is_other: bool = False) -> str:
        kind = type("Kind", (Answers,), {"is_other": is_other})
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), kind))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_port}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of the token, as the environment names it."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    return path


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


def test_the_token_is_asked_for(serve: Callable[..., str], token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = serve()
    dashboard = Dashboard.open(address)
    with pytest.raises(RequestError, match=r"has no job `x`; `alray jobs status` lists"):
        dashboard.job("x")
    token.write_text("another")
    assert "refuses this token; set RAY_AUTH_TOKEN_PATH" in refusal(address)
    token.unlink()
    assert "RAY_AUTH_TOKEN_PATH: the token cannot be read" in refusal(address)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert "asks for a token, and none was sent; set RAY_AUTH_TOKEN_PATH" in refusal(address)


def test_what_is_no_dashboard_is_told_at_once(serve: Callable[..., str]) -> None:
    assert "is not the dashboard of a Ray cluster" in refusal(serve(is_other=True))
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*silent.getsockname())
        assert f"no dashboard answers at http://{address}: Connection refused" in refusal(address)
        silent.listen()  # and never answers
        assert f"no dashboard answers at http://{address}: timed out" in refusal(address)
    assert "no dashboard answers at http://no-such-host.invalid:8265" in refusal("no-such-host.invalid")


def test_a_dashboard_that_goes_is_an_error_of_its_own(serve: Callable[..., str]) -> None:
    dashboard = Dashboard.open(serve())
    with pytest.raises(ConnectionLost, match="no longer answers"):
        dashboard.job("behind-a-proxy")
    dashboard.url = "http://127.0.0.1:1"
    with pytest.raises(ConnectionLost, match="no longer answers"):
        dashboard.job("x")
    with pytest.raises(ConnectionLost):
        dashboard.tail("x", print, lambda: None)


def test_a_log_that_is_sent_again_is_given_once() -> None:
    lines: list[str] = []
    log = Log(lines.append)
    for pieces in (["a\nb", "c\nd"], ["a\n", "bc\nde\nf"]):
        log.begin()
        for piece in pieces:
            log.take(piece)
    log.end()
    assert lines == ["a", "bc", "de", "f"]
