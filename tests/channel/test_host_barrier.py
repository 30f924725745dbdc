"""The barrier among processes of one host."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from multiprocessing.connection import Connection

import pytest

from alray.channel.host_barrier import HostBarrier, HostBarrierMember, Pipes
from alray.errors import ChannelError

ROUNDS = 50


def passed(barrier: HostBarrier | HostBarrierMember) -> None:
    for _ in barrier.wait():
        raise AssertionError("it does not take turns")


def member(text: str, said: Connection) -> None:
    barrier = HostBarrierMember(Pipes.of_text(text), 20.0)
    for number in range(ROUNDS):
        said.send(number)
        passed(barrier)


def test_nobody_passes_before_all_have_come_round_after_round() -> None:
    barrier = HostBarrier(4, 20.0)
    spawn = multiprocessing.get_context("spawn")
    ends, processes = [], []
    for _ in range(3):
        mine, theirs = spawn.Pipe(duplex=False)
        process = spawn.Process(target=member, args=(barrier.pipes.as_text(), theirs), daemon=True)
        process.start()
        ends.append(mine)
        processes.append(process)
    for number in range(ROUNDS):
        assert [end.recv() for end in ends] == [number] * 3
        assert not any(end.poll(0.001) for end in ends), "a stage went on without stage 0"
        passed(barrier)
    for process in processes:
        process.join(20)
        assert process.exitcode == 0


def test_a_silent_stage_is_noticed() -> None:
    barrier = HostBarrier(2, 0.05)
    with pytest.raises(ChannelError, match="barrier: a stage is silent"):
        passed(barrier)
    other = HostBarrierMember(barrier.pipes, 0.05)
    with pytest.raises(ChannelError, match="barrier: a stage is silent"):
        passed(other)


def leads(said: Connection) -> None:
    said.send(HostBarrier(2, 20.0).pipes.as_text())
    time.sleep(20)


def test_a_stage_0_that_is_gone_is_noticed_at_once() -> None:
    spawn = multiprocessing.get_context("spawn")
    mine, theirs = spawn.Pipe(duplex=False)
    process = spawn.Process(target=leads, args=(theirs,), daemon=True)
    process.start()
    pipes = Pipes.of_text(mine.recv())
    barrier = HostBarrierMember(pipes, 20.0)
    threading.Timer(0.2, process.kill).start()
    began = time.monotonic()
    with pytest.raises(ChannelError, match="barrier: stage 0 is gone"):
        passed(barrier)
    assert time.monotonic() - began < 10
    process.join(10)
    with pytest.raises(ChannelError, match="barrier: stage 0 is gone"):
        HostBarrierMember(Pipes(pipes.pid, pipes.arrivals, pipes.releases), 1.0)
    assert os.getpid() != pipes.pid
