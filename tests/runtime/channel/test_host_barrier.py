"""The barrier among processes of one host."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

import pytest

from alray.core.errors import ChannelError
from alray.runtime.channel.host_barrier import HostBarrier, Pipes

from .conftest import FORKED

pytestmark = pytest.mark.forked

ROUNDS = 50


def stage(pipes: Pipes, *, leads: bool = False, timeout_s: float = 20.0) -> HostBarrier:
    return HostBarrier(pipes if leads else pipes.here(), leads=leads, timeout_s=timeout_s)


def passed(barrier: HostBarrier, how: str = "wait") -> None:
    for _ in getattr(barrier, how)():
        raise AssertionError("it does not take turns")


def waits(text: str, said: Connection) -> None:
    barrier = stage(Pipes.of_text(text))
    for number in range(ROUNDS):
        said.send(number)
        passed(barrier)


def in_turn(text: str, said: Connection) -> None:
    """As a mini-batch of `parallel_backward` has them: a barrier for all, then one for stage 0, which goes on."""
    barrier = stage(Pipes.of_text(text))
    for number in range(ROUNDS):
        assert said.recv() == number  # the message that brings the mini-batch
        passed(barrier)
        said.send(number)
        passed(barrier, "gather")


def others(run: Callable[[str, Connection], None], pipes: Pipes) -> tuple[list[Connection], list[ForkServerProcess]]:
    ends, processes = [], []
    for _ in range(pipes.parties - 1):
        mine, theirs = FORKED.Pipe()
        process = FORKED.Process(target=run, args=(pipes.as_text(), theirs), daemon=True)
        process.start()
        ends.append(mine)
        processes.append(process)
    return ends, processes


def ended(processes: list[ForkServerProcess]) -> None:
    for process in processes:
        process.join(20)
        assert process.exitcode == 0


@pytest.mark.full
def test_nobody_passes_before_all_have_come_round_after_round() -> None:
    pipes = Pipes.made(4)
    barrier = stage(pipes, leads=True)
    ends, processes = others(waits, pipes)
    for number in range(ROUNDS):
        assert [end.recv() for end in ends] == [number] * 3
        assert not any(end.poll(0.001) for end in ends), "a stage went on without stage 0"
        passed(barrier)
    ended(processes)


@pytest.mark.full
def test_stage_0_alone_waits_until_all_are_gathered() -> None:
    pipes = Pipes.made(4)
    barrier = stage(pipes, leads=True)
    ends, processes = others(in_turn, pipes)
    for number in range(ROUNDS):
        for end in ends[:2]:
            end.send(number)
        held_back = threading.Timer(0.01, ends[2].send, (number,))
        began = time.monotonic()
        held_back.start()
        passed(barrier)
        passed(barrier, "gather")
        assert time.monotonic() - began > 0.009, "stage 0 went on without one of the others"
        assert [end.recv() for end in ends] == [number] * 3
    ended(processes)


def test_those_who_are_gathered_go_on_at_once() -> None:
    pipes = Pipes.made(3)
    one, other = stage(pipes), stage(pipes)
    passed(one, "gather")
    passed(other, "gather")  # stage 0 has not come
    passed(stage(pipes, leads=True, timeout_s=1.0), "gather")


def test_a_silent_stage_is_noticed() -> None:
    pipes = Pipes.made(2)
    with pytest.raises(ChannelError, match="barrier: a stage did not arrive"):
        passed(stage(pipes, leads=True, timeout_s=0.05))
    with pytest.raises(ChannelError, match="barrier: a stage did not arrive"):
        passed(stage(Pipes.made(2), leads=True, timeout_s=0.05), "gather")
    with pytest.raises(ChannelError, match="barrier: a stage did not arrive"):
        passed(stage(Pipes.made(2), timeout_s=0.05))


def leads(said: Connection) -> None:
    said.send(Pipes.made(2).as_text())
    time.sleep(20)


def test_a_stage_0_that_is_gone_is_noticed() -> None:
    mine, theirs = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=leads, args=(theirs,), daemon=True)
    process.start()
    pipes = Pipes.of_text(mine.recv())
    process.kill()
    process.join(10)
    with pytest.raises(ChannelError, match="barrier: stage 0 has ended"):
        pipes.here()
    assert os.getpid() != pipes.pid
