"""Edges within one process, for `--inline`: bounded queues between stages that take turns."""

from __future__ import annotations

from collections import deque

import torch

from alray.runtime.channel.edge import Barrier, Receiver, Sender, Waiting
from alray.runtime.channel.message import Message, packed_bytes


class Queue(Sender, Receiver):
    """Both ends of one edge. At most `in_flight` messages wait on it.

    It passes tensors on unchanged: the component boundary has already detached them and put them in default strides.
    There is no buffer to give back.
    """

    def __init__(self, edge: str, in_flight: int) -> None:
        self.edge = edge
        self.bytes_sent = 0
        self._in_flight = in_flight
        self._messages: deque[Message] = deque()

    def send(self, message: Message) -> Waiting[None]:
        while len(self._messages) >= self._in_flight:
            yield
        self._messages.append(message)
        self.bytes_sent += packed_bytes([t.numel() * t.element_size() for t in message.tensors.values()])

    def flush(self) -> Waiting[None]:
        while self._messages:
            yield

    def receive(self) -> Waiting[Message]:
        while not self._messages:
            yield
        return self._messages.popleft()

    def release(self, message: Message) -> None:
        message.tensors = {}

    def waiting(self) -> int:
        return len(self._messages)


class TurnBarrier(Barrier):
    """A barrier between stages that take turns in one process."""

    def __init__(self, parties: int) -> None:
        self._parties = parties
        self._arrived = 0
        self._shared: dict[int, torch.Tensor] = {}  # of this round

    def wait(self) -> Waiting[None]:
        round_end = (self._arrived // self._parties + 1) * self._parties
        self._arrived += 1
        while self._arrived < round_end:
            yield

    def share(self, own: dict[int, torch.Tensor]) -> Waiting[dict[int, torch.Tensor]]:
        if self._arrived % self._parties == 0:
            self._shared = {}
        shared = self._shared
        shared |= own
        yield from self.wait()
        return shared
