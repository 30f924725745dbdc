"""The interfaces that a stage's loop uses: the sender and the receiver of an edge, and the barrier.

Every operation that may have to wait is a generator. Within one process it yields while it cannot continue, so that
another stage can run. Between processes it blocks and never yields. The stage's loop is the same in both cases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TypeVar

import torch

from alray.runtime.channel.message import Message

T = TypeVar("T")
Waiting = Generator[None, None, T]


class Sender(ABC):
    """The sending end of one edge."""

    edge: str
    bytes_sent: int

    def begin(self, message: Message) -> Waiting[None]:
        """Send the tensors of the next message that are already computed, if the edge can split a message.

        `send` must still be called with the whole message. Waits as `send` does.
        """
        yield from ()

    @abstractmethod
    def send(self, message: Message) -> Waiting[None]:
        """Send a message. Waits while the edge is full (back-pressure).

        The edge may keep the tensors themselves, so the caller must not change them afterwards.
        """

    def flush(self) -> Waiting[None]:
        """Wait until every message has been sent. By default none is on its way after `send`."""
        yield from ()

    def close(self) -> None:  # noqa: B027 - most edges hold nothing that outlives them
        """Free what this end holds. Call it when the stages on both sides have ended."""


class Receiver(ABC):
    """The receiving end of one edge."""

    edge: str

    @abstractmethod
    def receive(self) -> Waiting[Message]:
        """Return the next message, in the order of sending. Its tensors are valid until `release`.

        If the sender used `begin`, some tensors may still be missing; `Message.more` is then true.
        """

    def complete(self, message: Message) -> Waiting[None]:
        """Wait for the missing tensors of the message that was received last. Does nothing if none are missing."""
        yield from ()

    @abstractmethod
    def release(self, message: Message) -> None:
        """Give the message's buffer back to the edge.

        Call this only when nothing reads the message's tensors any more, autograd included.
        """

    @abstractmethod
    def waiting(self) -> int:
        """How many messages have arrived and were not received yet. Nothing is counted before somebody asks."""

    def close(self) -> None:  # noqa: B027 - most edges hold nothing that outlives them
        """Free what this end holds. Call it when the stages on both sides have ended."""


class Barrier(ABC):
    """A point at which all stages of a replica wait for each other."""

    @abstractmethod
    def wait(self) -> Waiting[None]:
        """Return when every stage has called `wait`."""

    def gather(self) -> Waiting[None]:
        """Let stage 0 wait for all stages. The other stages may return at once: their next input comes from stage 0."""
        yield from self.wait()

    def share(self, own: dict[int, torch.Tensor]) -> Waiting[dict[int, torch.Tensor]]:
        """Return what all stages gave, when every stage has called `share`.

        Args:
            own: numbers by component, `[n]` on the host. Each call has the same components and as many of them.
        """
        raise AssertionError("a barrier of pipes carries nothing")

    def close(self) -> None:  # noqa: B027 - most barriers hold nothing that outlives them
        """Free what this stage holds of the barrier. Call it when all stages have ended."""
