"""The receiving end of an edge, from which messages are taken by what they are, not by the order in which they come."""

from __future__ import annotations

from collections import deque

from alray.runtime.channel.edge import Receiver, Waiting
from alray.runtime.channel.message import Message, MessageKind


class Inbox:
    """What came too early waits here, in its buffer."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._early: deque[Message] = deque()

    def first(self) -> Waiting[Message]:
        """Return the message that came first of those that were not taken, and leave it here."""
        if not self._early:
            self._early.append((yield from self._receiver.receive()))
        return self._early[0]

    def take(self, kind: MessageKind, step: int, virtual: int = 0, micro_batch: int = 0) -> Waiting[Message]:
        """Wait for this message and take it. Its tensors are valid until `release`."""
        wanted = (kind, step, virtual, micro_batch)
        for place, message in enumerate(self._early):
            if (message.kind, message.step, message.virtual, message.micro_batch) == wanted:
                del self._early[place]
                return message
        while True:
            message = yield from self._receiver.receive()
            if (message.kind, message.step, message.virtual, message.micro_batch) == wanted:
                return message
            self._early.append(message)

    def complete(self, message: Message) -> Waiting[None]:
        """As `Receiver.complete`."""
        yield from self._receiver.complete(message)

    def release(self, message: Message) -> None:
        """As `Receiver.release`."""
        self._receiver.release(message)

    def waiting(self) -> int:
        """How many messages have arrived and were not taken."""
        return len(self._early) + self._receiver.waiting()

    def close(self) -> None:
        """As `Receiver.close`."""
        self._receiver.close()
