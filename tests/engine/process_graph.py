"""The graph as plain processes: the same actors, rendezvous and edges as on Ray, without Ray placing them.

A stage on Ray costs three seconds of a processor before its first mini-batch, one of these a few tenths. So what many
runs of pipelines come to is tested here; that Ray runs the same code to the same bits is tested with a few.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from alray.planning.prediction.plan import Plan
from alray.runtime.graph.actor import ActorLocation
from alray.runtime.graph.graph import Answers, Graph
from alray.runtime.graph.ray_graph import RayGraph
from alray.runtime.options import Options
from alray.runtime.planner.stage_devices import Layout
from alray.runtime.runner import engines
from alray.runtime.runner.engines import Engine
from alray.runtime.stage.assignment import Assignment
from alray.runtime.stage.telemetry import StageStatus

POLL_S = 0.05


class Stage:
    """A process behind a connection, called as an actor is: `stage.method.remote(...)`, with itself as reference."""

    def __init__(self, server: str, assignment: Assignment, gpu: str | None = None) -> None:
        self.connection: Connection = Client(server)
        self.connection.send((assignment, gpu))
        self.pid: int
        self.gpu: str | None
        self.pid, self.gpu = self.connection.recv()

    def become(self, assignment: Assignment) -> None:
        """Be another stage on the same GPU, after `forget`."""
        self.connection.send(("become", (assignment,)))
        self.pid, self.gpu = self.connection.recv()

    def __getattr__(self, method: str) -> Method:
        return Method(self, method)

    def answer(self) -> Any:
        """What the oldest call that was not asked for yet gave."""
        return self.connection.recv()


@dataclass(frozen=True)
class Method:
    stage: Stage
    name: str

    def remote(self, *arguments: Any) -> Stage:
        self.stage.connection.send((self.name, arguments))
        return self.stage


class ProcessGraph(RayGraph):
    """Stages as processes forked by a stage server; they meet as actors on one node do."""

    def __init__(
        self,
        server: str,
        nodes: Sequence[str] = (),
        gpus: Sequence[str | None] = (),
        kept: list[Stage] | None = None,
    ) -> None:
        """server: the server's socket. nodes: those that the stages of a replica seem to be on; (): all on one. gpus:
        those of the stages, replica by replica; (): they have none. kept: processes of the run before, which go on with
        this one, as trials of a study do; the first run fills it."""
        super().__init__(list, run_token="", note=print)
        self._server, self._nodes, self._gpus, self._kept = server, nodes, gpus, kept

    def start(self, assignments: Sequence[Assignment]) -> None:
        self._assignments, self._answers = assignments, Answers(assignments)
        gpus = [self._gpus[index] if self._gpus else None for index in range(len(assignments))]
        if self._kept:
            self._actors = list(self._kept)
            for stage, assignment in zip(self._kept, assignments, strict=True):
                stage.become(assignment)
        else:
            of_gpus = zip(assignments, gpus, strict=True)
            self._actors = [Stage(self._server, assignment, gpu) for assignment, gpu in of_gpus]
        if self._kept is not None:
            self._kept[:] = self._actors
        nodes = [self._nodes[assignment.stage] if self._nodes else "here" for assignment in assignments]
        self._locations = [
            ActorLocation(node, "127.0.0.1", stage.pid, 0.0, True, stage.gpu)
            for node, stage in zip(nodes, self._actors, strict=True)
        ]
        self._meet()

    def _call(self, references: list[Stage]) -> list[Any]:
        return [stage.answer() for stage in references]

    def poll(self, timeout_s: float) -> list[StageStatus]:
        time.sleep(min(timeout_s, POLL_S))
        for index, stage in enumerate(self._actors):
            if not self._answers.has_finished(index):
                self._answers.take(index, self._call([stage.poll.remote(self._answers.received[index])])[0])
        return self._answers.statuses()

    def request_stop(self) -> None:
        self._call([self._actors[0].request_stop.remote()])

    def close(self) -> None:
        if self._kept is None:
            end(self._actors)
        else:
            self._call([stage.forget.remote() for stage in self._actors])


def end(stages: Sequence[Stage]) -> None:
    """End the processes of stages."""
    ended = []
    for stage in stages:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            ended.append(psutil.Process(stage.pid))
            os.kill(stage.pid, signal.SIGKILL)
        stage.connection.close()
    psutil.wait_procs(ended)


class ProcessEngine(Engine):
    """There is always room."""

    name = "ray"

    def __init__(
        self,
        server: str,
        nodes: Sequence[str] = (),
        gpus: Sequence[str | None] = (),
        kept: list[Stage] | None = None,
    ) -> None:
        super().__init__()
        self._server, self._nodes, self._gpus, self._kept = server, nodes, gpus, kept

    def graph(self, plan: Plan) -> Graph:
        return ProcessGraph(self._server, self._nodes, self._gpus, self._kept)

    def room(self, layouts: Sequence[Layout]) -> Layout | None:
        return layouts[0]


@contextmanager
def stage_server(folder: Path) -> Iterator[str]:
    """The stage server of this folder, ready; gives its socket.

    The first who asks starts it, for it takes some seconds of a processor. It ends when all who asked are gone, however
    they end: each holds the other end of its standard input.
    """
    socket, input_ = folder / "stages", folder / "stages.input"
    with FileLock(folder / "stages.lock"):
        if not input_.exists():
            os.mkfifo(input_)
        try:
            held = os.open(input_, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody reads: there is no server
            reader = os.open(input_, os.O_RDONLY | os.O_NONBLOCK)
            held = os.open(input_, os.O_WRONLY)
            socket.unlink(missing_ok=True)
            command = [sys.executable, Path(__file__).with_name("stage_server.py"), socket]
            process = subprocess.Popen(command, stdin=reader)
            os.close(reader)
            while not socket.exists():
                assert process.poll() is None, "the stage server did not come up"
                time.sleep(0.05)
    try:
        yield str(socket)
    finally:
        os.close(held)


@contextmanager
def in_processes(
    server: str,
    nodes: Sequence[str] = (),
    gpus: Sequence[str | None] = (),
    kept: list[Stage] | None = None,
) -> Iterator[None]:
    """Runs with `inline=False` are run in processes, not on Ray; others stay in this process. nodes, gpus, kept: see
    `ProcessGraph`."""

    def begin_engine(spec: Any, options: Options, note: Any) -> Engine:
        return engines.begin_engine(spec, options, note) if options.inline else ProcessEngine(server, nodes, gpus, kept)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("alray.orchestrate.begin_engine", begin_engine)
        yield
