"""Tensors to and from one neighbour, for whoever moves tensors by torch's point-to-point operations.

torch.distributed.pipelining sends over a process group. Over gloo, a thread of its own moves each message, and where
every processor computes it waits for one: on two cores one message in five took 2 to 7 ms. Over the edges of one host
the sender itself writes, and only who has nothing else to do waits.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from alray.channel.edge import Receiver, Sender
from alray.channel.message import Message, MessageKind
from alray.errors import ChannelError


class Wire:
    """Both directions between two neighbours; `send` and `receive` take what torch.distributed.isend and irecv do."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender, self._receiver = sender, receiver
        self._expected: deque[Arrival] = deque()

    def send(self, tensor: torch.Tensor, **_: Any) -> Departure:
        """Hand a tensor over; it may be written on from here on. Waits where the edge is full."""
        _drive(self._sender.send(Message(MessageKind.TRAIN, 0, {"s": tensor.detach()})))
        return Departure()

    def receive(self, tensor: torch.Tensor, **_: Any) -> Arrival:
        """Expect the next tensor; it is there once `wait` of what is returned has run."""
        arrival = Arrival(self, tensor)
        self._expected.append(arrival)
        return arrival

    def take_until(self, arrival: Arrival) -> None:
        """Take what comes, in the order in which it was expected, until this one has come."""
        while arrival in self._expected:
            first = self._expected.popleft()
            message = _drive(self._receiver.receive())
            came = message.tensors["s"]
            if (came.shape, came.dtype) != (first.tensor.shape, first.tensor.dtype):
                raise ChannelError(
                    f"edge {self._receiver.edge}: {tuple(came.shape)} of {came.dtype} came, "
                    f"{tuple(first.tensor.shape)} of {first.tensor.dtype} was expected",
                    mend="report this as a fault of alray",
                )
            with torch.no_grad():
                first.tensor.copy_(came)
            self._receiver.release(message)


class Arrival:
    """A receive under way, as torch waits for one."""

    def __init__(self, wire: Wire, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._wire = wire

    def wait(self) -> bool:
        """Raises ChannelError where the neighbour is gone or silent."""
        self._wire.take_until(self)
        return True


class Departure:
    """A send that is done."""

    def wait(self) -> bool:
        return True


def _drive(waiting: Any) -> Any:
    """The result of an operation of an edge between processes, which blocks and never yields."""
    try:
        next(waiting)
    except StopIteration as done:
        return done.value
    raise AssertionError("an edge between processes does not take turns")
