"""Serves one page and its events to this machine: by GET alone, and no file.

Python's server does: there is one page, which few people open. `http.server` warns that it checks little of a
request; so nothing of a request is used but whether it names one of the two paths below. Both begin with a key, which
is in the address that the command prints: other users of this machine can find the port, but not the page.
"""

from __future__ import annotations

import errno
import re
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hmac import compare_digest
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any

from alray.core.errors import RequestError
from alray.report.live.board import Board

_POLL_S = 0.1  # so soon the server sees that it shall end
_LAST_PORT = 65535
_KEY_BYTES = 16
_LOOPBACK = "127.0.0.1"
_HERE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.IGNORECASE)
"""The host names that a browser may use. Otherwise a page of a stranger's domain, led here by its name server,
could read what is served. Ports are not compared: through `ssh -L` it is another one."""


@dataclass(frozen=True)
class Door:
    """Where a page is served: a socket that hears this machine alone, and the key that its address has."""

    socket: socket.socket
    key: str

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *raised: object) -> None:
        self.socket.close()

    @property
    def address(self) -> str:
        """The URL to open in a browser."""
        return f"http://{_LOOPBACK}:{self.socket.getsockname()[1]}/{self.key}/"


def listen(port: int) -> Door:
    """A door with a new key.

    Args:
        port: 0 for any that is free.

    Raises:
        RequestError: if it is no port, if another program has it, or if it may not be used.
    """
    if not 0 <= port <= _LAST_PORT:
        raise RequestError(f"{port} is no port", key="--port", hint=f"choose one from 1024 to {_LAST_PORT}")
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_LOOPBACK, port))
        listening.listen()
    except OSError as error:
        listening.close()
        taken = "another program has it" if error.errno == errno.EADDRINUSE else error.strerror
        raise RequestError(
            f"port {port} cannot be used: {taken}", key="--port", hint="choose another one, or leave out --port"
        ) from error
    return Door(listening, secrets.token_urlsafe(_KEY_BYTES))


@contextmanager
def serving(door: Door, page: str, board: Board) -> Iterator[None]:
    """Serve a page and what the board tells it, in threads, until the block ends."""
    server = _Server(door, page.encode("utf-8", "backslashreplace"), board)
    thread = Thread(target=server.serve_forever, args=(_POLL_S,), name="alray-live-page", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # one that writes to a page that does not read keeps nothing from ending

    def __init__(self, door: Door, page: bytes, board: Board) -> None:
        TCPServer.__init__(self, door.socket.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = door.socket
        self.key = door.key
        self.page = page
        self.board = board

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no fault."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "alray", ""
    timeout = 30.0  # seconds for a request, and for a page to take what it is sent

    def do_GET(self) -> None:
        if not _HERE.fullmatch(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.FORBIDDEN, "This page is for the machine that serves it.")
            return
        _, key, *path = self.path.split("/", 2) if self.path.startswith("/") else ("", "")
        if not compare_digest(key.encode(), self.server.key.encode()):
            self.send_error(HTTPStatus.NOT_FOUND)
        elif path == [""]:
            self._begin("text/html; charset=utf-8", length=len(self.server.page))
            self.wfile.write(self.server.page)
        elif path == ["events"] and self.headers.get("Sec-Fetch-Site", "same-origin") == "same-origin":
            self._begin("text/event-stream")
            with closing(self.server.board.events()) as events:
                for event in events:
                    self.wfile.write(event)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _begin(self, kind: str, *, length: int | None = None) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: the terminal is the command's."""
