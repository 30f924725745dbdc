"""What a power cut, a full disk or a failing disk leaves of a run: a whole checkpoint, or word that there is none.

Every operation on files of a real run is recorded (`crash_model`). The folder is rebuilt as it may be after each of
them, and opened as a resume opens it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from alray.config.study.load import load_study
from alray.core.errors import AlrayError, CheckpointError
from alray.core.storage import disk
from alray.core.system_errors import system_faults
from alray.runtime.runner import driver
from alray.studies.folder import StudyFolder
from alray.studies.trial import record_of

from .crash_model import Tree, WatchedOs, has_just_a_name, states, tree_of
from .crashed_runs import OWN, RUN, SPEC, Desk, open_as_a_resume

UNWATCHED = {f"{RUN}/logs", f"{RUN}/logs/stage-0.log"}
"""What nothing depends on: written without this care."""

FAULTS = (errno.ENOSPC, errno.EIO, errno.EDQUOT)


@contextmanager
def watching(root: Path, **more: Any) -> Iterator[WatchedOs]:
    watched = WatchedOs(root, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "os", watched)
        yield watched


class Folder:
    """A folder that is rebuilt as one tree after another. Only what differs is written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.held: Tree = {}

    def become(self, tree: Tree) -> None:
        for path in sorted(self.held.keys() - tree.keys(), reverse=True):
            file = self.root / path
            file.rmdir() if self.held[path] is None else file.unlink()
        for path in sorted(tree):
            content = tree[path]
            if path not in self.held and content is None:
                (self.root / path).mkdir()
            elif content is not None and (path not in self.held or self.held[path] != content):
                (self.root / path).write_bytes(content)
        self.held = dict(tree)

    def touched(self, path: str) -> None:
        """Write this file anew next time."""
        if path in self.held:
            self.held[path] = b"changed"


def announced(watched: WatchedOs) -> list[int]:
    """After each number of operations, the last checkpoint that the records told of: it must not be lost."""
    last, found = 0, [0]
    for op in watched.operations:
        if op.kind == "write" and b'"kind":"checkpoint"' in op.content:
            last = json.loads(op.content.splitlines()[-1])["step"]
        found.append(last)
    return found


def check(desk: Desk, watched: WatchedOs, *, each: int, trained: int, every: int = 1) -> tuple[int, int]:
    """Open the states of a recording after every so many operations, and train one of `trained` different ones to its
    end; return how many different ones there were and how many were trained."""
    desk.clear()
    folder, seen, done = Folder(desk.root), set(), 0
    last_at = announced(watched)
    for number, tree in states(watched, each=each, seed=7):
        content = hashlib.sha256(repr((sorted(tree.items()), last_at[number])).encode()).digest()
        if content in seen or (number % every and not has_just_a_name(watched, number)):
            continue
        seen.add(content)
        folder.become(tree)
        open_as_a_resume(desk, desk.run_dir, last_at[number])
        folder.touched(f"{RUN}/records.jsonl")
        if f"{RUN}/records.jsonl" not in tree:
            (desk.run_dir / "records.jsonl").unlink(missing_ok=True)
        if len(seen) % trained == 0:
            desk.clear()
            folder.held = {}
            folder.become(tree)
            desk.to_the_end()
            desk.clear()
            folder.held = {}
            done += 1
    return len(seen), done


def is_torn(tree: Tree) -> bool:
    """Whether the records end in a part of a line."""
    content = (tree.get(f"{RUN}/records.jsonl") or b"\n").rstrip(b"\0")
    return not content.endswith(b"\n")


@pytest.fixture(scope="module")
def recordings(desk: Desk) -> list[WatchedOs]:
    """A run with checkpoints after 5, 6 (the best), 10 and 11, and its resume to the end; and a resume of what a power
    cut left, with torn records."""
    (desk.root / "runs").mkdir()
    with pytest.MonkeyPatch.context() as patch, watching(desk.root) as first:
        patch.setattr(driver, "POLL_S", 0.002)  # so that manifests come while the run goes on
        assert desk.begin(stop_after=11).summary.steps == 11
        assert desk.resume().error is None
    after = {path: content for path, content in tree_of(desk.root).items() if path not in UNWATCHED}
    (_, everything), (_, synced) = list(states(first, each=0, seed=0))[-2:]
    assert {path: content for path, content in everything.items() if path not in UNWATCHED} == after
    assert {path: synced[path] for path in after} == after, "only what was deleted last may come back"
    last = announced(first)
    torn = [tree for number, tree in states(first, each=4, seed=1) if last[number] == 10 and is_torn(tree)]
    desk.clear()
    Folder(desk.root).become(torn[len(torn) // 2])
    with watching(desk.root) as second:
        assert desk.resume().error is None
    desk.clear()
    return [first, second]


@pytest.mark.full
def test_some_states_after_a_power_cut(desk: Desk, recordings: list[WatchedOs]) -> None:
    tried = [check(desk, watched, each=1, trained=150, every=3) for watched in recordings]
    assert sum(number for number, _ in tried) >= 250 and sum(trained for _, trained in tried) >= 1


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_ten_thousand_states_after_a_power_cut(
    desk: Desk, recordings: list[WatchedOs], capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    tried = [check(desk, watched, each=28, trained=100) for watched in recordings]
    number, trained = (sum(each) for each in zip(*tried, strict=True))
    with capsys.disabled():
        seconds = time.monotonic() - began
        sys.stderr.write(f"\n{number:,} states, no violation; {trained} went on to the same bits; {seconds:.0f} s\n")
    assert number >= 10_000


def under_a_fault(desk: Desk, number: int, at: int, *, on_and_on: bool) -> int:
    """Do a run in which call `at` fails with this error of the system, and go on with what it leaves; return how many
    calls there were. on_and_on: all later calls that need room fail as well."""
    desk.clear()

    def fails(call: int, name: str) -> OSError | None:
        if call == at or (on_and_on and call > at and name in ("write", "mkdir")):
            return OSError(number, os.strerror(number))
        return None

    error: AlrayError | None = None
    with watching(desk.root, fails=fails) as watched:
        try:
            with system_faults():
                error = desk.begin().error
        except AlrayError as caught:
            error = caught
        # What a stage was about to write when the driver failed.
        while writing := [each for each in threading.enumerate() if each.name.startswith(("checkpoint-", "alray-in"))]:
            writing[0].join(60)
    if watched.calls >= at:
        assert error is not None and len(error.problems) == 1 and error.problems[0].hint
        told = str(error)
        assert "the disk is full" in told or os.strerror(number) in told, told
    assert not list(desk.root.rglob("*.partial"))
    if desk.run_dir.exists():
        open_as_a_resume(desk, desk.run_dir, 0)
    return watched.calls


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "POLL_S", 0.01)


def test_some_calls_that_fail(desk: Desk, quick_polls: None) -> None:
    calls = under_a_fault(desk, errno.EIO, sys.maxsize, on_and_on=False)
    for turn, at in enumerate(range(3, calls, 31)):
        under_a_fault(desk, FAULTS[turn % 3], at, on_and_on=FAULTS[turn % 3] == errno.ENOSPC)
        if turn % 4 == 0:
            desk.to_the_end()


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_every_call_fails_once(desk: Desk, quick_polls: None, capsys: pytest.CaptureFixture[str]) -> None:
    calls, done, resumed = under_a_fault(desk, errno.EIO, sys.maxsize, on_and_on=False), 0, 0
    for number in FAULTS:
        for at in range(1, calls + 1):
            under_a_fault(desk, number, at, on_and_on=number == errno.ENOSPC)
            done += 1
            if done % 20 == 0:
                desk.to_the_end()
                resumed += 1
    with capsys.disabled():
        sys.stderr.write(f"\n{done:,} calls failed, each ended in one error; {resumed} runs went on to the same bits\n")


STUDY = """\
study: small
base: base.yaml
axes: {data.batch_size: [5, 10]}
"""


def test_a_study_after_a_power_cut(tmp_path: Path) -> None:
    """It goes on with every trial that had ended, or can be started anew in the same folder."""
    (tmp_path / "own_block.py").write_text(OWN)
    (tmp_path / "base.yaml").write_text(SPEC)
    (tmp_path / "study.yaml").write_text(STUDY)
    loaded = load_study(tmp_path / "study.yaml")
    root, ended = tmp_path / "root", []
    root.mkdir()
    with watching(root) as watched:
        made = StudyFolder.make(loaded, root / "it")
        for trial in loaded.trials:
            made.write(record_of(trial, "failed", "it was only made up"))
            ended.append(len(watched.operations))
    shutil.rmtree(root)
    root.mkdir()
    folder, gone_on, made_anew = Folder(root), 0, 0
    different: set[str] = set()
    for number, tree in states(watched, each=4, seed=3):
        partial = [path for path in tree if path.endswith(".partial")]  # what is in it is of no account
        key = f"{sum(number >= at for at in ended)} {[item for item in sorted(tree.items()) if item[0] not in partial]}"
        if key in different:
            continue
        different.add(key)
        folder.become(tree)
        try:
            found = StudyFolder.open(root / "it")
        except CheckpointError:
            assert number < ended[0]
            StudyFolder.make(loaded, root / "it")
            shutil.rmtree(root / "it")
            folder.held = {}
            made_anew += 1
            continue
        found.grown(load_study(found.path / "study.yaml"))
        assert len(found.records()) >= sum(number >= at for at in ended)
        gone_on += 1
    assert gone_on >= 5 and made_anew >= 3
