"""The same as `test_crash_states` for a run on object storage: after each request, and where any of them fails.

An object is written whole, so a request was done or not. Its answer may be lost in both cases.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Lock
from typing import Any, Literal

import pytest

from alray.core.errors import AlrayError, RunError
from alray.core.storage import objects
from alray.core.storage.objects import ObjectPath
from alray.runtime.runner import driver

from .crashed_runs import STEPS, Desk, open_as_a_resume

obstore = pytest.importorskip("obstore")
from obstore.store import MemoryStore  # noqa: E402

KEY = "it"
Way = Literal["away before", "away after", "refused"]
WAYS: tuple[Way, ...] = ("away before", "away after", "refused")
AWAY = "HTTP error: connection closed"


class WatchedStorage:
    """`obstore` with one bucket in memory. It counts the requests, keeps what they changed, and lets one of them fail.

    at: the number of that request, from 1. way: it is not done, or done, and its answer is lost; or it and all later
    ones are refused.
    """

    exceptions = obstore.exceptions

    def __init__(self, kept: dict[str, bytes], at: int = sys.maxsize, way: Way = "refused") -> None:
        self.store = MemoryStore()
        for key, content in kept.items():
            obstore.put(self.store, key, content)
        self.at, self.way = at, way
        self.requests = 0
        self.states = [dict(kept)]
        self._one_request = Lock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(bucket: MemoryStore, *given: Any, **more: Any) -> Any:
            self.requests += 1
            failing = self.requests == self.at or (self.way == "refused" and self.requests > self.at)
            if failing and self.way == "refused":
                raise obstore.exceptions.PermissionDeniedError("403 Forbidden")
            if failing and self.way == "away before":
                raise obstore.exceptions.GenericError(AWAY)
            with self._one_request:  # another thread may delete an object that `held` has listed and not yet read
                answer = getattr(obstore, name)(bucket, *given, **more)
                self.states.append(self.held())
            if failing:
                raise obstore.exceptions.GenericError(AWAY)
            return answer

        return ask

    def held(self) -> dict[str, bytes]:
        return {
            meta["path"]: bytes(obstore.get(self.store, meta["path"]).bytes())
            for meta in obstore.list(self.store).collect()
        }


@pytest.fixture
def put_in_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[WatchedStorage], None]]:
    """Makes every request go to a storage."""
    monkeypatch.setattr(objects, "_AGAIN_S", 0.0)
    monkeypatch.setattr(driver, "POLL_S", 0.002)

    def put(storage: WatchedStorage) -> None:
        monkeypatch.setattr(objects, "_patience_s", {})
        monkeypatch.setattr(objects, "_obstore", lambda url: storage)
        monkeypatch.setattr(objects, "_bucket", lambda root: storage.store)

    yield put


@pytest.fixture
def far(desk: Desk) -> Desk:
    """The desk with its run folder on object storage."""
    return replace(desk, run_dir=ObjectPath(f"s3://memory/{KEY}"))


def states_of_a_run(far: Desk, put_in_place: Callable[[WatchedStorage], None]) -> list[dict[str, bytes]]:
    """What there was after each request of a run and of its resume, each state once."""
    storage = WatchedStorage({})
    put_in_place(storage)
    assert far.begin(stop_after=11).error is None
    assert far.resume().error is None
    different: list[dict[str, bytes]] = []
    for state in storage.states:
        if not different or state != different[-1]:
            different.append(state)
    return different


def announced(state: dict[str, bytes]) -> int:
    """The last checkpoint that the records tell of."""
    lines = b"".join(
        content for key, content in sorted(state.items()) if key.startswith(f"{KEY}/records/")
    ).splitlines()
    steps = [line.partition(b'"step":')[2].partition(b",")[0] for line in lines if b'"kind":"checkpoint"' in line]
    return int(steps[-1]) if steps else 0


@pytest.mark.full  # below, some requests that fail
def test_after_each_request(far: Desk, put_in_place: Callable[[WatchedStorage], None]) -> None:
    for number, state in enumerate(states_of_a_run(far, put_in_place)):
        put_in_place(WatchedStorage(state))
        open_as_a_resume(far, far.run_dir, announced(state))
        if number % 40 == 15:
            put_in_place(WatchedStorage(state))
            far.to_the_end()


def with_a_failure(far: Desk, put_in_place: Callable[[WatchedStorage], None], at: int, way: Way) -> int:
    """Do a run in which request `at` fails, and open what it leaves; return how many requests there were."""
    storage = WatchedStorage({}, at, way)
    put_in_place(storage)
    error: AlrayError | None = None
    try:
        error = far.begin().error
    except AlrayError as caught:
        error = caught
    failed = storage.requests >= at
    put_in_place(WatchedStorage(storage.held()))
    if way == "refused" and failed:
        assert error is not None and "403 Forbidden" in str(error) and len(error.problems) == 1
        assert isinstance(error, RunError) and error.problems[0].hint
    else:
        assert error is None
        assert far.steps() == list(range(1, STEPS + 1))
    open_as_a_resume(far, far.run_dir, 0)
    put_in_place(WatchedStorage(storage.held()))
    return storage.requests


@pytest.mark.full
def test_some_requests_that_fail(far: Desk, put_in_place: Callable[[WatchedStorage], None]) -> None:
    requests = with_a_failure(far, put_in_place, sys.maxsize, "refused")
    for turn, at in enumerate(range(2, requests, 17)):
        with_a_failure(far, put_in_place, at, WAYS[turn % 3])
        if turn % 3 == 2:
            far.to_the_end()


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_request_fails_once(
    far: Desk, put_in_place: Callable[[WatchedStorage], None], capsys: pytest.CaptureFixture[str]
) -> None:
    requests, resumed = with_a_failure(far, put_in_place, sys.maxsize, "refused"), 0
    for way in WAYS:
        for at in range(1, requests + 1):
            with_a_failure(far, put_in_place, at, way)
            if at % 20 == 0:
                far.to_the_end()
                resumed += 1
    with capsys.disabled():
        sys.stderr.write(f"\n{3 * requests:,} requests failed, no violation; {resumed} runs went on to the same bits\n")
