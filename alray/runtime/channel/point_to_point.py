"""Edges between processes: torch.distributed's point-to-point operations over gloo, with receives posted ahead.

Tensors on a GPU are copied through pinned host memory, so an edge works between any two devices.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from alray.core.accelerator import host_buffer
from alray.core.errors import ChannelError
from alray.runtime.channel.edge import Barrier, Receiver, Sender, Waiting
from alray.runtime.channel.message import Message, Slot
from alray.runtime.channel.pinned import await_copies, to_device

_CPU = torch.device("cpu")
_TOO_LATE = re.compile("^Timed out|before timing out|operation timeout")
"""How gloo begins when a neighbour does not answer, and what NCCL's watchdog says then."""
_OF_OWN_GPU = re.compile("(?<!unhandled )(CUDA|HIP) (error|failure)|out of memory", re.IGNORECASE)
"""What torch and NCCL say where a call of CUDA or ROCm fails in this process. NCCL's `unhandled cuda error` may also
come of a neighbour that has died."""
_SEND_SLOTS = 2  # one is being sent while the other is packed
_REST = 100  # added to the tag of an edge: the tag of the second parts of its messages


class PointToPointSender(Sender):
    """Packs each message into a buffer and sends it without waiting for its arrival.

    A buffer is used again only when its send is complete. A send completes only when the receiver has posted a buffer
    for it, so a slow receiver holds the sender back. While the receiver releases no buffer, `in_flight +
    2` calls of `send` succeed and the next one blocks: the receiver's ring holds `in_flight + 1` messages (the one it
    works on and those that wait), and one more is on its way.
    """

    def __init__(
        self,
        *,
        edge: str,
        peer: int,
        tag: int,
        capacity_bytes: int,
        group: dist.ProcessGroup,
        timeout_s: float,
        rest_bytes: int = 0,
        device: torch.device = _CPU,
    ) -> None:
        """
        Args:
            capacity_bytes: the largest message, or first part of one.
            rest_bytes: the largest second part, with its header; 0: no message of this edge has two parts.
        """
        self.edge = edge
        self.bytes_sent = 0
        line = _SEND_SLOTS, device, group, timeout_s
        self._first = _Outgoing(edge, peer, tag, capacity_bytes, *line)
        self._rest = _Outgoing(edge, peer, tag + _REST, rest_bytes, *line) if rest_bytes else None
        self._begun: frozenset[str] | None = None  # the tensors of the message under way that were sent already

    def begin(self, message: Message) -> Waiting[None]:
        if self._rest is not None:
            assert self._begun is None, "the message before this one is not complete"
            message.more = True
            self.bytes_sent += self._first.send(message)
            self._begun = frozenset(message.tensors)
        return
        yield  # makes this a generator; it blocks and never yields

    def send(self, message: Message) -> Waiting[None]:
        begun, self._begun = self._begun, None
        if begun is None or self._rest is None:
            self.bytes_sent += self._first.send(message)
        else:
            rest = {name: tensor for name, tensor in message.tensors.items() if name not in begun}
            self.bytes_sent += self._rest.send(Message(message.kind, message.step, rest))
        return
        yield

    def flush(self) -> Waiting[None]:
        self._first.finish()
        if self._rest is not None:
            self._rest.finish()
        return
        yield


@dataclass(eq=False)
class _Line:
    """The messages of one tag, or their second parts, from or to one neighbour, and their buffers."""

    edge: str
    peer: int
    tag: int
    capacity_bytes: int
    num_buffers: int
    device: torch.device
    group: dist.ProcessGroup
    timeout_s: float

    def __post_init__(self) -> None:
        self._timeout = timedelta(seconds=self.timeout_s)
        self._buffers = [host_buffer(self.capacity_bytes, self.device) for _ in range(self.num_buffers)]
        self._slots = [Slot(buffer) for buffer in self._buffers]


class _Outgoing(_Line):
    """Messages on their way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._works: list[dist.Work | None] = [None] * self.num_buffers
        self._next = 0

    def send(self, message: Message) -> int:
        """Send a message. Returns its bytes."""
        slot = self._next
        nbytes = self._slots[slot].write(message, edge=self.edge)
        self._next = (slot + 1) % self.num_buffers
        # Only one send is under way at a time: waiting mini-batches belong in the receiver's ring.
        self._finish((slot + 1) % self.num_buffers)
        content = self._buffers[slot][:nbytes]
        with naming(self.edge):
            self._works[slot] = dist.isend(content, group=self.group, tag=self.tag, group_dst=self.peer)
        return nbytes

    def finish(self) -> None:
        """Wait until everything is sent."""
        for slot in range(self.num_buffers):
            self._finish(slot)

    def _finish(self, slot: int) -> None:
        work = self._works[slot]
        if work is not None:
            wait_for(work, self._timeout, self.edge)
            self._works[slot] = None


class PointToPointReceiver(Receiver):
    """A ring of `in_flight + 1` buffers, and another one for second parts. A receive is posted into every free buffer.

    A buffer is posted again only after `release`. Until then autograd may still need it, and gloo writes without
    raising autograd's version counters, so an early write would corrupt gradients without any error.
    """

    def __init__(
        self,
        *,
        edge: str,
        peer: int,
        tag: int,
        capacity_bytes: int,
        in_flight: int,
        device: torch.device,
        group: dist.ProcessGroup,
        timeout_s: float,
        rest_bytes: int = 0,
    ) -> None:
        """
        Args:
            capacity_bytes, rest_bytes: as for the sender.
        """
        self.edge = edge
        self._device = device
        line = in_flight + 1, device, group, timeout_s
        self._first = _Incoming(edge, peer, tag, capacity_bytes, *line)
        self._rest = _Incoming(edge, peer, tag + _REST, rest_bytes, *line) if rest_bytes else None
        self._rest_slots: dict[int, int] = {}  # the buffer of the second part, by that of the first

    def receive(self) -> Waiting[Message]:
        slot, message = self._first.take()
        message.slot = slot
        to_device(message, self._device)
        return message
        yield

    def complete(self, message: Message) -> Waiting[None]:
        if message.more:
            assert self._rest is not None and message.slot is not None, "messages of this edge have one part"
            self._rest_slots[message.slot], rest = self._rest.take()
            to_device(rest, self._device)
            message.tensors |= rest.tensors
            # A GPU copies in order: when it has copied the second part, it has copied the first one too.
            message.more = False
            message.copied = rest.copied
        return
        yield

    def release(self, message: Message) -> None:
        if message.slot is None:
            return
        await_copies(message)
        slot = message.slot
        message.slot = None
        message.tensors = {}
        self._first.post(slot)
        rest = self._rest_slots.pop(slot, None)
        if rest is not None and self._rest is not None:
            self._rest.post(rest)

    def waiting(self) -> int:
        return self._first.waiting()


class _Incoming(_Line):
    """Messages as they come."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._posted: deque[tuple[int, dist.Work]] = deque()
        for slot in range(self.num_buffers):
            self.post(slot)

    def post(self, slot: int) -> None:
        """Let the next message that has no buffer yet come into this one."""
        self._slots[slot].clear()
        with naming(self.edge):
            work = dist.irecv(self._buffers[slot], group=self.group, tag=self.tag, group_src=self.peer)
        assert work is not None
        self._posted.append((slot, work))

    def take(self) -> tuple[int, Message]:
        """Wait for the next message. Returns the number of its buffer, for `post`, and the message."""
        if not self._posted:
            raise ChannelError(
                f"edge {self.edge}: every receive buffer is still in use",
                hint="release each message when its mini-batch is done",
            )
        slot, work = self._posted.popleft()
        wait_for(work, self._timeout, self.edge)
        return slot, self._slots[slot].read(edge=self.edge)

    def waiting(self) -> int:
        """How many messages have arrived and were not taken yet."""
        # gloo calls no receive completed before it was waited for.
        return sum(self._slots[slot].written for slot, _ in self._posted)


class GroupBarrier(Barrier):
    """A barrier over the stages of a replica. It uses a separate process group."""

    def __init__(self, group: dist.ProcessGroup, timeout_s: float) -> None:
        self._group = group
        self._timeout = timedelta(seconds=timeout_s)
        self._sizes: list[dict[int, int]] = []  # of what each stage shares

    def wait(self) -> Waiting[None]:
        work = dist.barrier(group=self._group, async_op=True)
        if work is not None:
            wait_for(work, self._timeout, "barrier")
        return
        yield

    def share(self, own: dict[int, torch.Tensor]) -> Waiting[dict[int, torch.Tensor]]:
        with naming("barrier"):
            if not self._sizes:  # once: to pickle takes longer than all else
                self._sizes = [{}] * self._group.size()
                dist.all_gather_object(self._sizes, {index: len(value) for index, value in own.items()}, self._group)
            longest = max(sum(sizes.values()) for sizes in self._sizes)
            numbers = torch.cat([torch.zeros(0, dtype=torch.float64), *own.values()])
            row = torch.nn.functional.pad(numbers, (0, longest - len(numbers)))
            rows = [torch.empty_like(row) for _ in self._sizes]
            work = dist.all_gather(rows, row, group=self._group, async_op=True)
        if work is not None:
            wait_for(work, self._timeout, "barrier")
        return {
            index: value
            for sizes, given in zip(self._sizes, rows, strict=True)
            for index, value in zip(sizes, given[: sum(sizes.values())].split([*sizes.values()]), strict=True)
        }
        yield


def wait_for(work: dist.Work, timeout: timedelta | None, edge: str) -> None:
    """Wait for a send or receive. Raises ChannelError if the neighbour has ended or does not answer in time.

    Args:
        timeout: None, for NCCL alone: the current stream waits, and not the calling thread.
    """
    with naming(edge):
        if timeout is None:
            work.wait()
        else:
            work.wait(timeout)


@contextmanager
def naming(edge: str) -> Iterator[None]:
    """Inside, an error of gloo or NCCL about a lost connection becomes a ChannelError that names the edge, as by
    `lost_neighbour`."""
    try:
        yield
    except RuntimeError as error:
        raise lost_neighbour(edge, error) from error


def lost_neighbour(edge: str, error: RuntimeError) -> ChannelError:
    """Turn an error of gloo or NCCL about a lost connection into an error that names the edge.

    Raises the error itself if it is one of this stage's own GPU, or of its memory: a kernel that has failed may be told
    at any later call, and no neighbour is lost.
    """
    own = isinstance(error, torch.AcceleratorError | torch.OutOfMemoryError) or _OF_OWN_GPU.search(str(error))
    if own:
        raise error
    # Keep what happened; drop the path in gloo's sources before it and the advice after it.
    reason = re.sub(r"^\[[^]]*\] ", "", str(error).splitlines()[0]).partition(". ")[0]
    state = "silent" if _TOO_LATE.search(reason) else "gone"
    return ChannelError(f"edge {edge}: the neighbour is {state} ({reason})", hint="look for the error of its stage")
