"""Every loop and wait of alray comes to an end, or says what it waits for: a table of them, and what could make some of
them go on for ever."""

from __future__ import annotations

import ast
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset

import alray
from alray.api.objects import taken
from alray.core.errors import DataError, RunError
from alray.core.run_folder.records import EventRecord, read
from alray.core.storage import objects
from alray.models.imported.identity import attributes, module_sha256
from alray.parts.sources.text_folder.source import TextFolderSource
from alray.runtime.graph import inline
from alray.submit.package import _all_files

PACKAGE = Path(__file__).parents[1] / "alray"
WAITING = {
    "acquire",
    "check",
    "exists",
    "poll",
    "read",
    "readline",
    "recv",
    "recv_into",
    "sigwaitinfo",
    "sleep",
    "wait",
}
"""Names of calls that wait, or ask again."""

DEADLINE = "the deadline of the run, by which the driver ends the attempt"
ENDS = {
    # Computing
    "config/sections/grammar.py: bare": "each round takes one layer off an annotation",
    "data/csv_file.py: csv_records": "the end of a file that is neither a pipe nor a device",
    # Stages
    "runtime/channel/in_process.py: Queue.receive": "rounds without progress of `InlineGraph._take_turns`",
    "runtime/channel/in_process.py: Queue.flush": "the same",
    "runtime/channel/in_process.py: Queue.send": "the same",
    "runtime/channel/in_process.py: TurnBarrier.wait": "the same",
    "runtime/channel/inbox.py: Inbox.take": "each round takes a message, for which an edge waits so long",
    "runtime/channel/shared_memory.py: SharedMemorySender._free_slot": "each round waits for a slot, as an edge does",
    "runtime/channel/slow_link.py: wait_until_arrived": "the seconds that the link takes",
    "runtime/graph/inline.py: InlineGraph._run": "the turn of an earlier run; a warning tells it, Ctrl-C ends the wait",
    "runtime/graph/inline.py: InlineGraph._take_turns": "rounds without progress",
    "runtime/graph/inline.py: InlineGraph.paused": "a turn that ends, or a stop",
    "runtime/stage/disturbance.py: Slowdown.wait": "the seconds by which the spec slows a replica",
    "runtime/stage/reduction.py: ReducedReplication._all_done": "the sums, which fail where a replica is lost",
    "runtime/stage/replication.py: SeveralReplicas._get": DEADLINE,
    # The driver
    "runtime/ray_train/trainer.py: train_worker": "a stage that finished or failed, or the word of the driver",
    "runtime/runner/driver.py: Driver._attempt": "`judge`: stages that finished, failed, or passed " + DEADLINE,
    "runtime/runner/driver.py: Driver.run": "`run.max_failures` attempts without a newer checkpoint",
    # Ray and clusters
    "runtime/cluster/placement.py: Placement._result": "_TRIAL_S",
    "runtime/cluster/room.py: wait_for_room": "room; others that have it are told, and nodes that are lost",
    "runtime/graph/processes.py: all_ended": "its limit",
    "runtime/local_ray/start.py: private_folder": "a random name that no folder has",
    "runtime/local_ray/reaper.py: end_processes": "_ENDING_S",
    "runtime/local_ray/sigterm.py: _pass_on": "a signal that this process sends itself",
    "runtime/local_ray/head.py: told_of_loss.tell": "the end of what is watched",
    # The probe
    "runtime/probe/companion.py: main": "a closed input: its parent ended",
    "runtime/probe/contention.py: Companions.wait_until_ready": "companions that are ready, or have ended",
    "runtime/probe/link.py: _exactly": "_SILENT_S of the socket",
    "runtime/probe/link.py: _take": "the same",
    # Storage, jobs
    "core/storage/appended.py: _CopyToObject.run": "the end of the run",
    "core/storage/objects.py: ObjectPath._retry": "_PATIENCE_S",
    "core/storage/objects.py: ObjectPath.remove": "no object, or the same ones as in the round before",
    "submit/fetch.py: _answer": "the job, or the timeout",
    "submit/follow.py: _follow": "the job; a lost connection after _PATIENCE_S",
    "submit/follow.py: wait_until_ended": "the timeout",
    "submit/send.py: require_room_for": "_BEGINNING_S",
}
"""What ends each loop that nothing counts, and each that waits, by its place."""


def loops() -> Iterator[tuple[str, bool]]:
    """The place of each function of alray, and whether it has such a loop."""

    def below(node: ast.AST, file: str, names: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
        for each in ast.iter_child_nodes(node):
            inside = names
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = (*names, each.name)
            if inside:
                yield f"{file}: {'.'.join(inside)}", isinstance(each, ast.While) and has_no_count(each)
            yield from below(each, file, inside)

    for path in sorted(PACKAGE.rglob("*.py")):
        yield from below(ast.parse(path.read_text(encoding="utf-8")), path.relative_to(PACKAGE).as_posix(), ())


def has_no_count(loop: ast.While) -> bool:
    nodes = list(ast.walk(loop))
    called = {getattr(each.func, "attr", getattr(each.func, "id", "")) for each in nodes if isinstance(each, ast.Call)}
    gives_up_turn = any(isinstance(each, ast.Yield) and each.value is None for each in nodes)
    return isinstance(loop.test, ast.Constant) or gives_up_turn or not called.isdisjoint(WAITING)


def test_the_table_has_every_loop_that_may_have_no_end() -> None:
    found = list(loops())
    assert {place for place, has_loop in found if has_loop} <= ENDS.keys()
    assert ENDS.keys() <= {place for place, _ in found}, "a row of the table is of nothing"


def ended(call: Callable[[], Any], within_s: float = 20.0) -> Any:
    """What a call gives, or the error that it raises. It fails if the call has not ended so soon."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001  # given to the test
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(within_s)
    assert found, "it does not end"
    return found[0]


class Node:
    """Knows all others."""

    def __init__(self, others: list[Node]) -> None:
        self.others = others
        others.append(self)


def test_attributes_that_hold_each_other_are_read_once() -> None:
    module, nodes = nn.Linear(2, 2), list[Node]()
    for _ in range(30):
        Node(nodes)
    module.graph, shared = nodes, [nodes]
    for _ in range(60):
        shared = [shared, shared]
    module.shared = shared
    before = ended(lambda: attributes(module))
    assert before == attributes(module) and ended(lambda: module_sha256(module)) == module_sha256(module)
    nodes[7].others = []
    assert before != attributes(module)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        return itertools.repeat((torch.zeros(4), 0))


@pytest.mark.parametrize("data", [Endless(), iter(Endless()), itertools.count()], ids=["set", "iterator", "numbers"])
def test_data_without_an_end_is_refused(data: Any) -> None:
    assert isinstance(ended(lambda: taken({"name": "x"}, (), data=data)), DataError)


@pytest.mark.parametrize("what", ["a pipe", "a device"])
def test_a_document_that_is_no_file_is_refused(tmp_path: Path, what: str) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.txt").write_text("words")
    file = tmp_path / "bad" / "1.txt"
    if what == "a pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    error = ended(lambda: TextFolderSource(train=tmp_path, test=None).open("train"))
    assert isinstance(error, DataError) and error.problems[0].file == str(file)


def test_folders_that_link_to_each_other_are_walked_once(tmp_path: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "file").write_text("")
        for number in range(4):
            (tmp_path / name / "below" / f"link{number}").symlink_to(tmp_path / other)
    files = ended(lambda: list(_all_files(tmp_path / "one")))
    assert len(files) == 1 + 4  # and two/file, as below each of the links


def test_a_storage_that_keeps_what_it_does_not_find_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = objects.ObjectPath("s3://bucket/folder")
    monkeypatch.setattr(objects.ObjectPath, "below", lambda self: ["a"])
    monkeypatch.setattr(objects.ObjectPath, "_request", lambda self, request: False)
    error = ended(folder.remove)
    assert isinstance(error, RunError) and "folder/a" in error.problems[0].message


def test_a_wait_for_an_earlier_run_of_the_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can end its thread: code of the user computes there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(inline, "_TOLD_S", 0.1)
    earlier: Future[None] = Future()
    monkeypatch.setattr(inline, "_left", [earlier])
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    data = (torch.zeros(12, 4), torch.arange(12) % 3)
    costs = [{"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}] * 2
    spec = {"data": {"batch_size": 4}, "run": {"steps": 2, "train": "never"}, "pipeline": {"costs": costs}}

    def released(futures: list[Future[None]], timeout: float | None = None) -> Any:
        answer = wait(futures, timeout=timeout)
        if futures == [earlier] and not earlier.done():
            earlier.set_result(None)
        return answer

    monkeypatch.setattr(inline, "wait", released)
    run = ended(lambda: alray.train(net, data, inline=True, progress=False, **spec), 60)
    assert isinstance(run, alray.Run), run
    events = [each for each in read(run.folder / "records.jsonl") if isinstance(each, EventRecord)]
    assert any(each.event == "warning" and "earlier run" in each.message for each in events)
