"""The two ends of an edge, and the barrier, as the stage's loop sees them.

Each operation that may have to wait is a generator. In one process it yields while it cannot go on, so that another
stage may run; between processes it blocks and never yields. The stage's loop is the same for both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import TypeVar

from alray.channel.message import Message

T = TypeVar("T")
Waiting = Generator[None, None, T]


class Sender(ABC):
    """The sending end of one edge."""

    edge: str
    bytes_sent: int

    def begin(self, message: Message) -> Waiting[None]:
        """Hand over those tensors of the next message that are known already, where the edge can part a message.

        `send` is given the whole message all the same. Waits as `send` does.
        """
        yield from ()

    @abstractmethod
    def send(self, message: Message) -> Waiting[None]:
        """Hand a message over; waits while the edge holds as many as it may (back-pressure).

        The edge may hold the tensors themselves, so the sender leaves them alone from here on.
        """

    @abstractmethod
    def flush(self) -> Waiting[None]:
        """Wait until all that was handed over has left."""


class Receiver(ABC):
    """The receiving end of one edge."""

    edge: str

    @abstractmethod
    def receive(self) -> Waiting[Message]:
        """The next message, in the order sent. Its tensors are valid until `release`.

        One that was begun may come without those of its tensors that were not known yet (`Message.more`).
        """

    def complete(self, message: Message) -> Waiting[None]:
        """Wait for the rest of the tensors of the message last received; nothing where they are all there."""
        yield from ()

    @abstractmethod
    def release(self, message: Message) -> None:
        """Give the message's buffer back: only after nothing, autograd included, reads its tensors any more."""


class Barrier(ABC):
    """Where all stages of a replica wait for one another."""

    @abstractmethod
    def wait(self) -> Waiting[None]:
        """Returns when every stage has come as far."""

    def gather(self) -> Waiting[None]:
        """The same for stage 0 alone; the others need not wait, where nothing reaches them before stage 0 goes on."""
        yield from self.wait()
