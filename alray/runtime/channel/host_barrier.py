"""A barrier between processes of one host, built on pipes.

gloo's barrier is made for networks: with sixteen stages on two cores it took over ten milliseconds. Here each stage
writes one byte into a pipe. The stage that finds the bytes of all stages there releases the others, so no process wakes
up before the last stage has arrived. The pipes have no names: the other processes open them through the descriptors of
stage 0, so nothing is left behind when a process ends.
"""

from __future__ import annotations

import array
import fcntl
import os
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from alray.core.errors import ChannelError
from alray.runtime.channel.edge import Barrier, Waiting
from alray.runtime.channel.host_pipe import Descriptors, ReadEnd, write_and_yield


@dataclass(frozen=True)
class Pipes(Descriptors):
    """The pipes of a barrier as file descriptors of process `pid`; stage 0 sends this to the other stages.

    There are two pipes of each kind, used in alternate rounds. A pipe is (end to read, end to write).
    """

    parties: int
    arrivals: Sequence[Sequence[int]]
    releases: Sequence[Sequence[int]]

    @classmethod
    def made(cls, parties: int) -> Pipes:
        """Make the pipes in this process, for `parties` stages."""
        for_arrivals, for_releases = (os.pipe(), os.pipe()), (os.pipe(), os.pipe())
        for read_end, _ in for_arrivals:
            os.set_blocking(read_end, False)
        return cls(os.getpid(), parties, for_arrivals, for_releases)

    def here(self) -> Pipes:
        """Return the same pipes as descriptors of this process. Raises ChannelError if stage 0 has ended."""

        def ends(pipe: Sequence[int], flags: int = 0) -> Sequence[int]:
            return self.opened(pipe[0], os.O_RDONLY | flags), self.opened(pipe[1], os.O_WRONLY)

        try:
            return Pipes(
                os.getpid(),
                self.parties,
                [ends(pipe, os.O_NONBLOCK) for pipe in self.arrivals],
                [ends(pipe) for pipe in self.releases],
            )
        except OSError as error:
            raise ChannelError("barrier: stage 0 has ended", hint="look for the error of its process") from error


@dataclass
class HostBarrier(Barrier):
    """One stage's side of the barrier.

    Two pipes of each kind are used in turn, so that a fast stage cannot take a byte that is meant for a slow stage in
    the round before.

    Attributes:
        pipes: descriptors of this process.
        leads: whether this is stage 0, the one that waits in `gather`.
    """

    pipes: Pipes
    leads: bool
    timeout_s: float

    def __post_init__(self) -> None:
        self._releases = [ReadEnd(read_end) for read_end, _ in self.pipes.releases]
        self._round = 0

    def wait(self) -> Waiting[None]:
        others = self.pipes.parties - 1
        if self._is_last():
            # `write_and_yield` yields the processor. With several stages to wake, this one would wait for all of them.
            self._release(others, write_and_yield if others == 1 else os.write)
        else:
            self._await_release()
        self._round += 1
        return
        yield

    def gather(self) -> Waiting[None]:
        is_last = self._is_last()
        if self.leads and not is_last:
            self._await_release()
        elif is_last and not self.leads:
            self._release(1, write_and_yield)
        self._round += 1
        return
        yield

    def close(self) -> None:
        for pipe in (*self.pipes.arrivals, *self.pipes.releases):
            for end in pipe:
                os.close(end)

    def _is_last(self) -> bool:
        """Write this stage's byte. Returns whether this stage is the one that found the bytes of all stages."""
        read_end, write_end = self.pipes.arrivals[self._round % 2]
        os.write(write_end, b"\0")
        waiting = array.array("i", [0])
        fcntl.ioctl(read_end, termios.FIONREAD, waiting)
        if waiting[0] < self.pipes.parties:
            return False
        # Two stages that arrive together may both see all the bytes; only one of them can read them.
        try:
            return len(os.read(read_end, self.pipes.parties)) == self.pipes.parties
        except BlockingIOError:
            return False

    def _release(self, stages: int, write: Callable[[int, bytes], object]) -> None:
        write(self.pipes.releases[self._round % 2][1], bytes(stages))

    def _await_release(self) -> None:
        try:
            self._releases[self._round % 2].read(1, self.timeout_s)
        except TimeoutError as error:
            raise ChannelError("barrier: a stage did not arrive in time", hint="look at the other stages") from error
