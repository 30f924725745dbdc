"""Edges within one process, for `--inline`: bounded queues between stages that take turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

import torch

from alray.runtime.channel.edge import Barrier, Receiver, Sender
from alray.runtime.channel.message import Message, packed_bytes


class Queue:
    """One edge. At most `in_flight` messages wait on it."""

    def __init__(self, edge: str, in_flight: int) -> None:
        self.edge = edge
        self.in_flight = in_flight
        self.waiting: deque[Message] = deque()

    def sender(self) -> QueueSender:
        return QueueSender(self)

    def receiver(self) -> QueueReceiver:
        return QueueReceiver(self)


class QueueSender(Sender):
    """Passes tensors on unchanged: the component boundary has already detached them and put them in default strides."""

    def __init__(self, queue: Queue) -> None:
        self.edge = queue.edge
        self.bytes_sent = 0
        self._queue = queue

    def send(self, message: Message) -> Generator[None, None, None]:
        while len(self._queue.waiting) >= self._queue.in_flight:
            yield
        self._queue.waiting.append(message)
        self.bytes_sent += packed_bytes([t.numel() * t.element_size() for t in message.tensors.values()])

    def flush(self) -> Generator[None, None, None]:
        while self._queue.waiting:
            yield


class QueueReceiver(Receiver):
    """Takes messages from the queue. There is no buffer to give back."""

    def __init__(self, queue: Queue) -> None:
        self.edge = queue.edge
        self._queue = queue

    def receive(self) -> Generator[None, None, Message]:
        while not self._queue.waiting:
            yield
        return self._queue.waiting.popleft()

    def release(self, message: Message) -> None:
        message.tensors = {}

    def waiting(self) -> int:
        return len(self._queue.waiting)


class TurnBarrier(Barrier):
    """A barrier between stages that take turns in one process."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._arrived = 0
        self._shared: dict[int, torch.Tensor] = {}  # of this round

    def wait(self) -> Generator[None, None, None]:
        round_end = (self._arrived // self._parties + 1) * self._parties
        self._arrived += 1
        while self._arrived < round_end:
            yield

    def share(self, own: dict[int, torch.Tensor]) -> Generator[None, None, dict[int, torch.Tensor]]:
        if self._arrived % self._parties == 0:
            self._shared = {}
        shared = self._shared
        shared |= own
        yield from self.wait()
        return shared
