"""A real S3 server, in this process and on a port of this machine, with a new bucket for each test; runs cut short."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest

if TYPE_CHECKING:
    from .crashed_runs import Desk


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of the server. The environment names it, as for any process that a test starts."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        yield url
    server.stop()


@pytest.fixture
def bucket(server: str) -> str:
    """The URL of an empty bucket."""
    name = f"runs-{uuid.uuid4().hex}"
    urlopen(Request(f"{server}/{name}", method="PUT")).close()
    return f"s3://{name}"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory, counted_once: None) -> Iterator[Desk]:
    """For the tests of what a crash leaves."""
    from .crashed_runs import desk_in

    with desk_in(tmp_path_factory.mktemp("crash")) as made:
        yield made
