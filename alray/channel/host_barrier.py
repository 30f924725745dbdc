"""A barrier among processes of one host, over pipes.

gloo's barrier is made for networks: with sixteen stages on two cores it took over ten milliseconds. Here each stage
writes one byte and waits for one, so a round is as many wake-ups as there are stages. The pipes have no names: the
others open them through the descriptors of stage 0, and nothing is left behind however a process ends.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass

from alray.channel.host_pipe import open_of, read_within
from alray.channel.link import Barrier
from alray.errors import ChannelError


@dataclass(frozen=True)
class Pipes:
    """Where the pipes of a barrier are, told by stage 0 to the others."""

    pid: int
    arrivals: int  # descriptor of the end that is written to
    releases: tuple[int, int]  # of the ends that are read, for rounds in turn

    def as_text(self) -> str:
        return " ".join(map(str, (self.pid, self.arrivals, *self.releases)))

    @classmethod
    def of_text(cls, text: str) -> Pipes:
        pid, arrivals, *releases = (int(word) for word in text.split())
        return cls(pid, arrivals, (releases[0], releases[1]))


class HostBarrier(Barrier):
    """Stage 0's side: takes a byte of each of the others, then gives each of them one.

    Two pipes of release serve in turn, so that a stage that is quick cannot take the byte a slow one has not taken yet.
    """

    def __init__(self, parties: int, timeout_s: float) -> None:
        self._others, self._timeout_s = parties - 1, timeout_s
        self._arrivals, arrivals = os.pipe()
        ends = [os.pipe() for _ in range(2)]
        self._releases = [written for _, written in ends]
        self._round = 0
        self.pipes = Pipes(os.getpid(), arrivals, (ends[0][0], ends[1][0]))

    def wait(self) -> Generator[None, None, None]:
        missing = self._others
        while missing:
            missing -= len(_read(self._arrivals, missing, self._timeout_s))
        os.write(self._releases[self._round % 2], bytes(self._others))
        self._round += 1
        return
        yield


class HostBarrierMember(Barrier):
    """The side of every other stage."""

    def __init__(self, pipes: Pipes, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._arrivals = _open(pipes.pid, pipes.arrivals, os.O_WRONLY)
        self._releases = [_open(pipes.pid, descriptor, os.O_RDONLY) for descriptor in pipes.releases]
        self._round = 0

    def wait(self) -> Generator[None, None, None]:
        try:
            os.write(self._arrivals, b"\0")
        except BrokenPipeError as error:
            raise _gone() from error
        _read(self._releases[self._round % 2], 1, self._timeout_s)
        self._round += 1
        return
        yield


def _open(pid: int, descriptor: int, flags: int) -> int:
    try:
        return open_of(pid, descriptor, flags)
    except OSError as error:
        raise _gone() from error


def _read(descriptor: int, most: int, timeout_s: float) -> bytes:
    """Some bytes, as soon as there are any."""
    try:
        return read_within(descriptor, most, timeout_s)
    except TimeoutError as error:
        raise ChannelError("barrier: a stage is silent", mend="see what happened to the other stages") from error
    except BrokenPipeError as error:
        raise _gone() from error


def _gone() -> ChannelError:
    return ChannelError("barrier: stage 0 is gone", mend="see what happened to its process")
