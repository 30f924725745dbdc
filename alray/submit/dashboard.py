"""The dashboard of a Ray cluster, over HTTP: its jobs, their logs, and files below the folder of the logs.

Each request has a time limit. Ray's `JobSubmissionClient` sets none and may wait for ever.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from alray.core.environment import environment
from alray.core.errors import AlrayError, ConnectionLost, RequestError

PORT = 8265
"""The dashboard's port, unless Ray was told another."""
_ANSWER_S, _OPEN_S = 30.0, 5.0
_UPLOAD_S, _TAKEN_S = 3600.0, 120.0
"""To send a request of `JobSubmissionClient` with a package, and to wait for its answer."""
_DOWNLOAD_S = 24 * 3600
"""A whole download. Ray ends it after 30 s if it is not told another limit."""
_ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
_TOKEN_MEND = "set RAY_AUTH_TOKEN_PATH to the file with the token of this cluster (on its head: `ray get-auth-token`)"

_FAULTS = (OSError, http.client.HTTPException)
_FAULTS_OF_ANSWERS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""The errors from an answer that is no JSON, or has another form than a dashboard's."""
_OF_PROXIES = (502, 503, 504)
"""The status codes of a proxy while the dashboard behind it does not answer."""
_CHUNK = 1 << 20
_LONGEST_ANSWER = 1 << 30
"""Bytes of an answer in JSON: the log of a job that runs for weeks."""
_MOST_NODES = 10_000  # the most that Ray lists


@dataclass(frozen=True)
class Job:
    """A job of the cluster.

    Attributes:
        status: as Ray names it.
        exit_code: of its command, None before it has ended.
        begun_s, ended_s: seconds since 1970.
        node: where its command runs, None before it does.
    """

    id: str
    status: str
    message: str
    metadata: Mapping[str, str]
    begun_s: float | None
    ended_s: float | None
    exit_code: int | None
    node: str | None

    @property
    def ended(self) -> bool:
        return self.status in _ENDED

    def require_result(self) -> str:
        """The run folder or study folder. Raises RequestError if alray did not submit this job."""
        if "result" not in self.metadata:
            raise RequestError(
                f"`{self.id}` is no job of `alray submit`", key="ID", hint="`alray jobs status` lists them"
            )
        return self.metadata["result"]


@dataclass(frozen=True)
class Node:
    """A node of the cluster.

    Attributes:
        resources: all that it has, as Ray names them.
    """

    labels: Mapping[str, str]
    resources: dict[str, float]


class Dashboard:
    """The dashboard at one address. `open` checks that it is there and takes the token."""

    def __init__(self, address: str) -> None:
        """Raises RequestError if this cannot be the address of a dashboard, or the token cannot be read."""
        self.url = url_of(address)
        token = _token()
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @classmethod
    def open(cls, address: str) -> Dashboard:
        """The dashboard that answers at this address within 5 s.

        Raises RequestError if none answers, if it is something else, or if it refuses the token.
        """
        dashboard = cls(address)
        try:
            with dashboard._ask("GET", "/api/version", timeout_s=_OPEN_S) as answer:
                version = json.loads(answer.read(_CHUNK))["ray_version"]
            with dashboard._ask("GET", f"/api/jobs/{quote(str(version))}", timeout_s=_OPEN_S):
                pass
        except urllib.error.HTTPError as error:
            # No job has the version as its name: with a token that is accepted this is a 404.
            if not (error.code == 404 and "/api/jobs/" in error.url):
                raise dashboard._refused(error) from error
        except (*_FAULTS_OF_ANSWERS, http.client.HTTPException) as error:
            raise dashboard._something_else() from error
        except OSError as error:
            raise dashboard._nobody(error) from error
        return dashboard

    def submit(
        self, job_id: str, command: str, metadata: Mapping[str, str], *, runtime_env: dict[str, Any], node: str | None
    ) -> None:
        """Submit a job through Ray Jobs.

        Args:
            runtime_env: as Ray takes it.
            node: where the command must run; None: on the head.

        Raises:
            RequestError: if the cluster refuses it, and ConnectionLost if the connection breaks.
        """
        try:
            # Ray looks there before it takes the address that it is given.
            with environment(RAY_API_SERVER_ADDRESS=self.url):
                client = _client(self.url, self._headers)
            client.submit_job(
                submission_id=job_id,
                # Ray starts a shell, and sends the signal of a stop to its processes. A stop that comes while the shell
                # starts another process would be lost there: the command replaces the shell.
                entrypoint=f"exec {command}",
                metadata=dict(metadata),
                runtime_env=runtime_env,
                entrypoint_label_selector={"ray.io/node-id": node} if node is not None else None,
            )
        except OSError as error:  # what `requests` raises is one, too
            raise ConnectionLost(
                f"the connection to {self.url} broke while the job was being sent",
                key="--address",
                hint="`alray jobs status` shows whether the job is there; if it is not, submit it again",
            ) from error
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1].rstrip(".")
            raise RequestError(
                f"the cluster at {self.url} refused the job: {reason}",
                key="--address",
                hint="read the dashboard's log on the head (dashboard.log and dashboard_agent.log)",
            ) from error

    def jobs(self) -> list[Job]:
        """All jobs that were submitted, the newest first."""
        with self._understood():
            found = [_job(value) for value in self._json("GET", "/api/jobs/") if value.get("submission_id")]
        return sorted(found, key=lambda job: job.begun_s or 0.0, reverse=True)

    def job(self, job_id: str) -> Job:
        """Raises RequestError if there is no such job, and ConnectionLost, as all that follows."""
        with self._understood():
            return _job(self._of(job_id, "GET", ""))

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        answer = self._json("GET", f"/api/v0/nodes?detail=true&limit={_MOST_NODES}")
        with self._understood():
            found = answer["data"]["result"]["result"]
            return [Node(node["labels"], node["resources_total"]) for node in found if node["state"] == "ALIVE"]

    def stop(self, job_id: str) -> None:
        """Ask a job to stop: its command gets a signal."""
        self._of(job_id, "POST", "/stop")

    def log(self, job_id: str) -> str:
        """The log of a job so far."""
        with self._understood():
            return str(self._of(job_id, "GET", "/logs").get("logs") or "")

    def file(self, node: str, name: str) -> Iterator[bytes]:
        """The bytes of a file in the folder of a node's logs, piece by piece."""
        query = urlencode({"node_id": node, "filename": name, "lines": -1, "timeout": _DOWNLOAD_S})
        with self._connected(), self._ask("GET", f"/api/v0/logs/file?{query}", timeout_s=_ANSWER_S) as answer:
            pieces = iter(lambda: answer.read(_CHUNK), b"")
            while piece := next(pieces, b""):
                yield piece

    def tail(self, job_id: str, take: Callable[[str], None]) -> None:
        """Give what a job writes to `take`, from the beginning of its log, until it has ended.

        Raises:
            ConnectionLost: if the connection breaks.
        """
        asyncio.run(self._tail(job_id, take))

    async def _tail(self, job_id: str, take: Callable[[str], None]) -> None:
        import aiohttp

        try:
            async with (
                aiohttp.ClientSession(headers=self._headers, trust_env=True) as session,
                session.ws_connect(f"{self.url}/api/jobs/{quote(job_id)}/logs/tail") as log,
            ):
                _keep_alive(log.get_extra_info("socket"))
                async for message in log:
                    if message.type is aiohttp.WSMsgType.ERROR:
                        raise self._lost() from message.data
                    take(message.data)
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise self._lost() from error

    def _of(self, job_id: str, method: str, what: str) -> Any:
        missing = RequestError(
            f"the cluster at {self.url} has no job `{job_id}`", key="ID", hint="`alray jobs status` lists the jobs"
        )
        if not job_id.strip("."):  # `/api/jobs/` is the list of all jobs
            raise missing
        return self._json(method, f"/api/jobs/{quote(job_id, safe='')}{what}", missing)

    def _json(self, method: str, path: str, missing: RequestError | None = None) -> Any:
        with (
            self._understood(),
            self._connected(missing),
            self._ask(method, path, timeout_s=_ANSWER_S) as answer,
        ):
            return json.loads(answer.read(_LONGEST_ANSWER))

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Raise RequestError where an answer in the block is not one of a dashboard."""
        try:
            yield
        except AlrayError:
            raise
        except _FAULTS_OF_ANSWERS as error:
            raise self._something_else() from error

    @contextmanager
    def _connected(self, missing: RequestError | None = None) -> Iterator[None]:
        """Raise ConnectionLost where a request in the block is not answered, and RequestError where it is refused.

        Args:
            missing: what to raise if the dashboard does not have what was asked for.
        """
        try:
            yield
        except urllib.error.HTTPError as error:
            if error.code in _OF_PROXIES:
                raise self._lost() from error
            raise (missing if error.code == 404 and missing is not None else self._refused(error)) from error
        except _FAULTS as error:
            raise self._lost() from error

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(
            f"the dashboard at {self.url} no longer answers",
            key="--address",
            hint="the job may continue: look at it with `alray jobs status` when the cluster can be reached again",
        )

    def _ask(self, method: str, path: str, *, timeout_s: float) -> Any:
        request = urllib.request.Request(self.url + path, headers=self._headers, method=method)
        return urllib.request.build_opener(_SameHost).open(request, timeout=timeout_s)

    def _refused(self, error: urllib.error.HTTPError) -> RequestError:
        if error.code == 401:
            return RequestError(
                f"the cluster at {self.url} asks for a token, and none was sent", key="--address", hint=_TOKEN_MEND
            )
        if error.code == 403:
            return RequestError(f"the cluster at {self.url} refuses this token", key="--address", hint=_TOKEN_MEND)
        if error.code == 404:
            return self._something_else()
        return RequestError(
            f"the dashboard at {self.url} answers with HTTP {error.code}: {error.reason}",
            key="--address",
            hint="read dashboard.log on the head",
        )

    def _something_else(self) -> RequestError:
        return RequestError(
            f"what answers at {self.url} is not the dashboard of a Ray cluster",
            key="--address",
            hint=f"give the dashboard's address, such as http://HEAD:{PORT}; its port is a separate one",
        )

    def _nobody(self, error: OSError) -> RequestError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        text = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
        return RequestError(
            f"no dashboard answers at {self.url}: {text}",
            key="--address",
            hint="correct the address, start the cluster with its dashboard, or forward its port: "
            f"`ssh -L {PORT}:localhost:{PORT} HEAD`",
        )


def _client(url: str, headers: Mapping[str, str]) -> Any:
    """Ray's client, with time limits."""
    from ray.job_submission import JobSubmissionClient

    logging.getLogger("ray.dashboard.modules.dashboard_sdk").setLevel(logging.WARNING)  # it tells of each upload

    class Limited(JobSubmissionClient):
        def _do_request(self, *arguments: Any, **options: Any) -> Any:
            return super()._do_request(*arguments, timeout=(_UPLOAD_S, _TAKEN_S), **options)

    return Limited(url, headers=dict(headers))


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows no redirect to another host, which would get the token too."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if (before.scheme, before.netloc) != (after.scheme, after.netloc):
            raise RequestError(
                f"the dashboard at {before.scheme}://{before.netloc} sends on to {after.scheme}://{after.netloc}, and "
                "the token is not sent to another address",
                key="--address",
                hint="give that address yourself, if it is your cluster's",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def url_of(address: str) -> str:
    """The URL of a dashboard: `http://` and the port are added where they are missing.

    Raises RequestError for an address of another kind.
    """
    given = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise RequestError(
            f"`{address}` is not the address of a dashboard",
            key="--address",
            hint=f"give http://HOST:PORT; the port is {PORT} unless Ray was told another",
        )
    if port is None and "://" not in address:
        given += f":{PORT}"
    return given.rstrip("/")


def _token_location() -> str | Path | None:
    """Where the token to send is: `RAY_AUTH_TOKEN`, or the file that Ray would read; None where none is sent."""
    mode = os.environ.get("RAY_AUTH_MODE", "").lower()
    if mode == "disabled":
        return None
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    given = os.environ.get("RAY_AUTH_TOKEN_PATH")
    if given is None and mode != "token":
        return None  # the token in the home folder may be another cluster's
    return Path(given).expanduser() if given else Path.home() / ".ray" / "auth_token"


def _token() -> str | None:
    """The token to send; None where there is none."""
    location = _token_location()
    if not isinstance(location, Path):
        return os.environ[location].strip() if location is not None else None
    try:
        return location.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        given = os.environ.get("RAY_AUTH_TOKEN_PATH")
        if given is None:
            return None
        raise RequestError(
            f"the token cannot be read: {error.strerror}", file=given, key="RAY_AUTH_TOKEN_PATH", hint=_TOKEN_MEND
        ) from error


def _job(value: Mapping[str, Any]) -> Job:
    def seconds(key: str) -> float | None:
        return value[key] / 1000 if value.get(key) else None

    return Job(
        id=value["submission_id"],
        status=value["status"],
        message=value.get("message") or "",
        metadata={str(key): str(text) for key, text in (value.get("metadata") or {}).items()},
        begun_s=seconds("start_time"),
        ended_s=seconds("end_time"),
        exit_code=value.get("driver_exit_code"),
        node=value.get("driver_node_id"),
    )


def _keep_alive(connection: Any) -> None:
    """Let the system ask every 10 s whether the other side is still there, and end the connection if it is not.

    A log may be silent for hours. Without this a laptop that slept would listen to nobody for ever.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
