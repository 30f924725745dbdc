"""The dashboard of a Ray cluster: its jobs and their logs by Ray's own client, and files beside the logs of a node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from alray.core.environment import environment
from alray.core.errors import ConnectionLost, RequestError

PORT = 8265
"""The dashboard's port, unless Ray was told another."""
_ANSWER_S = 30.0
_UPLOAD_S = 3600.0
"""To send a package. Ray's client by itself waits for ever, for an answer too."""
_DOWNLOAD_S = 24 * 3600
"""A whole download. Ray ends it after 30 s if it is not told another limit."""
_ENDED = ("STOPPED", "SUCCEEDED", "FAILED")
_OF_PROXIES = (502, 503, 504)
"""The status codes of a proxy while the dashboard behind it does not answer."""
_CHUNK = 1 << 20
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
            raise RequestError(f"`{self.id}` is no job of `alray submit`", key="ID", hint="`ray job list` lists them")
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
    """The dashboard at one address. `open` checks that it is there and takes the token.

    Every method raises ConnectionLost where the dashboard does not answer, and RequestError where it refuses.
    """

    def __init__(self, address: str) -> None:
        """Raises RequestError if this cannot be the address of a dashboard."""
        self.url = url_of(address)
        self._client: Any = None

    @classmethod
    def open(cls, address: str) -> Dashboard:
        """The dashboard that answers at this address.

        Raises RequestError if none answers, if it is something else, or if it refuses the token.
        """
        dashboard = cls(address)
        try:
            # Ray looks there before it takes the address that it is given.
            with dashboard._asking(), environment(RAY_API_SERVER_ADDRESS=dashboard.url):
                dashboard._client = _client(dashboard.url)
        except ConnectionLost as error:
            raise RequestError(
                f"no dashboard answers at {dashboard.url}",
                key="--address",
                hint="correct the address, start the cluster with its dashboard, or forward its port: "
                f"`ssh -L {PORT}:localhost:{PORT} HEAD`",
            ) from error
        return dashboard

    def submit(
        self, job_id: str, command: str, metadata: Mapping[str, str], *, runtime_env: dict[str, Any], node: str | None
    ) -> None:
        """Submit a job through Ray Jobs.

        Args:
            runtime_env: as Ray takes it.
            node: where the command must run; None: on the head.
        """
        with self._asking():
            self._client.submit_job(
                submission_id=job_id,
                # Ray starts a shell, and sends the signal of a stop to its processes. A stop that comes while the shell
                # starts another process would be lost there: the command replaces the shell.
                entrypoint=f"exec {command}",
                metadata=dict(metadata),
                runtime_env=runtime_env,
                entrypoint_label_selector={"ray.io/node-id": node} if node is not None else None,
            )

    def jobs(self) -> list[Job]:
        """All jobs that were submitted, the newest first."""
        with self._asking():
            found = [_job(each) for each in self._client.list_jobs() if each.submission_id]
        return sorted(found, key=lambda job: job.begun_s or 0.0, reverse=True)

    def job(self, job_id: str) -> Job:
        """Raises RequestError if there is no such job."""
        with self._asking():
            return _job(self._client.get_job_info(job_id))

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""
        with self._asking():
            answer = self._client._do_request("GET", f"/api/v0/nodes?detail=true&limit={_MOST_NODES}").json()
            found = answer["data"]["result"]["result"]
            return [Node(node["labels"], node["resources_total"]) for node in found if node["state"] == "ALIVE"]

    def stop(self, job_id: str) -> None:
        """Ask a job to stop: its command gets a signal."""
        with self._asking():
            self._client.stop_job(job_id)

    def log(self, job_id: str) -> str:
        """The log of a job so far."""
        with self._asking():
            return str(self._client.get_job_logs(job_id) or "")

    def file(self, node: str, name: str) -> Iterator[bytes]:
        """The bytes of a file in the folder of a node's logs, piece by piece."""
        import requests

        query: dict[str, str | int] = {"node_id": node, "filename": name, "lines": -1, "timeout": _DOWNLOAD_S}
        with (
            self._asking(),
            requests.get(
                f"{self.url}/api/v0/logs/file",
                query,
                headers=self._client.headers,
                stream=True,
                timeout=_ANSWER_S,
            ) as answer,
        ):
            answer.raise_for_status()
            yield from answer.iter_content(_CHUNK)

    def tail(self, job_id: str, take: Callable[[str], None]) -> None:
        """Give what a job writes to `take`, from the beginning of its log, until it has ended."""
        import aiohttp

        async def read() -> None:
            async for text in self._client.tail_job_logs(job_id):
                take(text)

        try:
            asyncio.run(read())
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # the last one: a log that breaks
            raise self._lost() from error

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Raise ConnectionLost or RequestError where a request in the block fails."""
        from ray.exceptions import AuthenticationError

        try:
            yield
        except AuthenticationError as error:
            raise RequestError(
                f"the cluster at {self.url} refuses this token, or asks for one and none was sent",
                key="--address",
                hint="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to the file with the token of this cluster (on "
                "its head: `ray get-auth-token`)",
            ) from error
        except (ValueError, KeyError, TypeError) as error:  # of no JSON, or another form than a dashboard's
            raise RequestError(
                f"what answers at {self.url} is not the dashboard of a Ray cluster",
                key="--address",
                hint=f"give the dashboard's address, such as http://HEAD:{PORT}; its port is a separate one",
            ) from error
        except OSError as error:  # what `requests` raises is one, too
            raise self._lost() from error
        except RuntimeError as error:  # what Ray's client makes of a status code
            reason = str(error).strip().splitlines()[-1].rstrip(".")
            raise RequestError(
                f"the cluster at {self.url} refuses this: {reason}",
                key="--address",
                hint="`ray job list` lists its jobs, and dashboard.log on its head says more",
            ) from error

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(
            f"the dashboard at {self.url} no longer answers",
            key="--address",
            hint="look at the job with `ray job list` when the cluster can be reached again: it may continue",
        )


def _client(url: str) -> Any:
    """Ray's client, with time limits."""
    from ray.job_submission import JobSubmissionClient

    logging.getLogger("ray.dashboard.modules.dashboard_sdk").setLevel(logging.WARNING)  # it tells of each upload

    class Limited(JobSubmissionClient):
        @property
        def headers(self) -> dict[str, Any]:
            """With the token, where the cluster asks for one."""
            return dict(self._headers)

        def _do_request(self, method: str, *arguments: Any, **options: Any) -> Any:
            limit = (_UPLOAD_S, _ANSWER_S) if method == "PUT" else _ANSWER_S
            answer = super()._do_request(method, *arguments, timeout=limit, **options)
            if answer.status_code in _OF_PROXIES:
                raise ConnectionError(answer.reason)
            return answer

    return Limited(url)


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


def _job(found: Any) -> Job:
    """Of what Ray tells of one. Its times are in milliseconds."""
    begun_s, ended_s = (time / 1000 if time else None for time in (found.start_time, found.end_time))
    return Job(
        found.submission_id,
        str(found.status),
        found.message or "",
        found.metadata or {},
        begun_s,
        ended_s,
        found.driver_exit_code,
        found.driver_node_id,
    )
