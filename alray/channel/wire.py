"""Tensors to and from one neighbour, as replacements for torch's `isend` and `irecv`.

torch.distributed.pipelining sends over a process group. gloo moves each message in a separate thread, which waits for a
processor while all of them compute: on two cores one message in five took 2 to 7 ms. Over an edge of one host the
sender itself writes the message, and only a process that has nothing else to do waits.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from alray.channel.edge import Receiver, Sender
from alray.channel.message import Message, MessageKind
from alray.errors import ChannelError


class Wire:
    """Both directions between two neighbours.

    `send` and `receive` take the same arguments as `torch.distributed.isend` and `irecv`.
    """

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender = sender
        self._receiver = receiver
        self._expected: deque[Arrival] = deque()

    def close(self) -> None:
        """Free both ends. Call it when the stages on both sides have ended."""
        self._sender.close()
        self._receiver.close()

    def send(self, tensor: torch.Tensor, **_: Any) -> Departure:
        """Send a tensor, which the caller must not overwrite: an edge between GPUs has still to send it.

        Waits if the edge is full.
        """
        _drive(self._sender.send(Message(MessageKind.TRAIN, 0, {"s": tensor.detach()})))
        return Departure()

    def receive(self, tensor: torch.Tensor, **_: Any) -> Arrival:
        """Expect the next tensor. It is in `tensor` after `wait` of the returned object."""
        arrival = Arrival(self, tensor)
        self._expected.append(arrival)
        return arrival

    def take_until(self, arrival: Arrival) -> None:
        """Receive the expected tensors in order, up to and including this one."""
        while arrival in self._expected:
            first = self._expected.popleft()
            message = _drive(self._receiver.receive())
            came = message.tensors["s"]
            if (came.shape, came.dtype) != (first.tensor.shape, first.tensor.dtype):
                raise ChannelError(
                    f"edge {self._receiver.edge}: expected a tensor of shape {tuple(first.tensor.shape)} and type "
                    f"{first.tensor.dtype}, got {tuple(came.shape)} and {came.dtype}",
                    hint="report this as a bug of alray",
                )
            with torch.no_grad():
                first.tensor.copy_(came)
            self._receiver.release(message)


class Arrival:
    """A receive that is under way. torch calls `wait` on it."""

    def __init__(self, wire: Wire, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._wire = wire

    def wait(self) -> bool:
        """Wait for the tensor. Raises ChannelError if the neighbour has ended or does not answer in time."""
        self._wire.take_until(self)
        return True


class Departure:
    """A send that is already complete. torch calls `wait` on it."""

    def wait(self) -> bool:
        return True


def _drive(waiting: Any) -> Any:
    """Run an operation of an edge between processes, which blocks and never yields, and return its result."""
    try:
        next(waiting)
    except StopIteration as done:
        return done.value
    raise AssertionError("an edge between processes never yields")
