"""Ranks as threads of this process, each with its own gloo group, and as processes."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Barrier
from typing import Any, TextIO

import pytest
import torch.distributed as dist


@pytest.fixture
def on_ranks() -> Callable[..., list[Any]]:
    """`on_ranks(n, work)` calls work(rank, group) on n ranks at once; what they return, in rank order."""

    def run(size: int, work: Callable[[int, Any], Any]) -> list[Any]:
        store, connected = dist.HashStore(), Barrier(size, timeout=30)

        def rank_work(rank: int) -> Any:
            group = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=30))
            connected.wait()  # or a rank without work would close its end while another one connects
            return work(rank, group)

        with ThreadPoolExecutor(size) as threads:
            return list(threads.map(rank_work, range(size)))

    return run


def driven(waiting: Generator[None, None, Any]) -> Any:
    """Run an operation of an edge within one process, which yields until it can go on."""
    while True:
        try:
            next(waiting)
        except StopIteration as done:
            return done.value


FORKED = multiprocessing.get_context("forkserver")  # which loads torch once, for all processes of the tests
FORKED.set_forkserver_preload(["alray.runtime.channel.host_barrier", "alray.runtime.channel.shared_memory"])


def _run(script: Path, folder: Path) -> None:
    sys.argv = [str(script), str(folder)]
    sys.path[:0] = [str(script.parent), str(script.parents[3])]
    runpy.run_path(str(script), run_name="__main__")


@pytest.fixture(scope="session")
def run_script() -> Callable[[str, Path], None]:
    """`run_script(name, folder)` runs a script beside this file, whose processes write what they came to."""

    def run(name: str, folder: Path) -> None:
        process = FORKED.Process(target=_run, args=(Path(__file__).with_name(name), folder))
        process.start()
        process.join(150)
        assert process.exitcode == 0, f"{name} ended with {process.exitcode}"

    return run


@dataclass
class Other:
    """A process that executes a program, and the other ends of its standard input and output."""

    process: ForkServerProcess
    stdin: TextIO
    stdout: TextIO

    def kill(self) -> None:
        self.process.kill()

    def wait(self) -> int | None:
        self.process.join(30)
        return self.process.exitcode


def _execute(program: str, arguments: tuple[str, ...], given: Connection, said: Connection) -> None:
    sys.argv = ["-c", *arguments]
    sys.stdin, sys.stdout = os.fdopen(os.dup(given.fileno())), os.fdopen(os.dup(said.fileno()), "w")
    exec(program, {"__name__": "__main__"})


@pytest.fixture
def other() -> Iterator[Callable[..., Other]]:
    """`other(program, *arguments)` starts the other end of an edge in a separate process."""
    started: list[Other] = []

    def start(program: str, *arguments: str) -> Other:
        (given, to_it), (from_it, said) = FORKED.Pipe(duplex=False), FORKED.Pipe(duplex=False)
        process = FORKED.Process(target=_execute, args=(program, arguments, given, said), daemon=True)
        process.start()
        given.close()
        said.close()
        ends = os.fdopen(os.dup(to_it.fileno()), "w"), os.fdopen(os.dup(from_it.fileno()))
        started.append(Other(process, *ends))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()
        each.stdin.close()
        each.stdout.close()
