"""Edges between processes of one host: tensors in a ring of shared memory, headers and free slots over gloo.

A message is written once, by the sender, into memory the receiver computes from: nothing is copied on the way. On two
cores a message of 2 MB over gloo's sockets took 2 to 3 ms of a stage's time; this way its packing is all it takes.

The memory has no name: the receiver opens it through the sender's file descriptor, so nothing is left behind however a
process ends. An end must live as long as its process: gloo does not forget a receive whose memory is gone, and would
hold up whatever arrives after it.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from alray.channel.link import Receiver, Sender
from alray.channel.message import Message, pack, unpack
from alray.channel.point_to_point import lost_neighbour, wait_for
from alray.errors import ChannelError


@dataclass(frozen=True)
class Ring:
    """Where the slots of an edge are, told by the sender to the receiver."""

    pid: int
    descriptor: int
    slot_bytes: int
    num_slots: int

    def as_text(self) -> str:
        return f"{self.pid} {self.descriptor} {self.slot_bytes} {self.num_slots}"

    @classmethod
    def of_text(cls, text: str) -> Ring:
        return cls(*(int(word) for word in text.split()))


def _slots(descriptor: int, ring: Ring) -> list[torch.Tensor]:
    """The slots as flat uint8 tensors over the shared memory, each beginning on a page."""
    memory = mmap.mmap(descriptor, ring.slot_bytes * ring.num_slots)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    return list(whole.split(ring.slot_bytes))


class SharedMemorySender(Sender):
    """Writes a message into a free slot and tells the receiver which; waits where no slot is free.

    While a receiver gives no slot back, `send` returns `in_flight + 1` times: for the message it works on, and for the
    `in_flight` that wait.
    """

    def __init__(
        self,
        *,
        edge: str,
        peer: int,
        tag: int,
        capacity_bytes: int,
        in_flight: int,
        group: dist.ProcessGroup,
        timeout_s: float,
    ) -> None:
        """Makes the memory: `in_flight` messages may wait, and one more is the receiver's to work on."""
        self.edge = edge
        self.bytes_sent = 0
        self._peer, self._tag, self._group = peer, tag, group
        self._timeout = timedelta(seconds=timeout_s)
        page = mmap.PAGESIZE
        slot_bytes = -(-capacity_bytes // page) * page
        self._descriptor = os.memfd_create(f"alray-{edge}", os.MFD_CLOEXEC)
        self.ring = Ring(os.getpid(), self._descriptor, slot_bytes, in_flight + 1)
        os.ftruncate(self._descriptor, slot_bytes * self.ring.num_slots)
        self._capacity_bytes = capacity_bytes
        self._slots = _slots(self._descriptor, self.ring)
        self._free = deque(range(self.ring.num_slots))
        self._notes = [torch.tensor([slot]) for slot in range(self.ring.num_slots)]
        self._works: list[dist.Work | None] = [None] * len(self._slots)
        self._given_back = torch.tensor([0])
        self._returning = self._expect()

    def _expect(self) -> dist.Work:
        """Post the receive of the next slot that is given back."""
        try:
            work = dist.irecv(self._given_back, group=self._group, tag=self._tag, group_src=self._peer)
        except RuntimeError as error:
            raise lost_neighbour(self.edge, error) from error
        assert work is not None
        return work

    def _take_back(self) -> None:
        wait_for(self._returning, self._timeout, self.edge)
        self._free.append(int(self._given_back))
        self._returning = self._expect()

    def send(self, message: Message) -> Generator[None, None, None]:
        while self._free and self._returning.is_completed():
            self._take_back()
        if not self._free:
            self._take_back()
        slot = self._free[0]
        nbytes = pack(message, self._slots[slot][: self._capacity_bytes], edge=self.edge)
        self._free.popleft()
        self._finish(slot)
        try:
            self._works[slot] = dist.isend(self._notes[slot], group=self._group, tag=self._tag, group_dst=self._peer)
        except RuntimeError as error:
            raise lost_neighbour(self.edge, error) from error
        self.bytes_sent += nbytes
        return
        yield  # a generator that never waits in turns: it blocks

    def flush(self) -> Generator[None, None, None]:
        for slot in range(len(self._slots)):
            self._finish(slot)
        return
        yield

    def _finish(self, slot: int) -> None:
        work = self._works[slot]
        if work is not None:
            wait_for(work, self._timeout, self.edge)
            self._works[slot] = None


class SharedMemoryReceiver(Receiver):
    """Computes from the slots the sender wrote; gives each back when its mini-batch is done."""

    def __init__(
        self,
        *,
        edge: str,
        peer: int,
        tag: int,
        ring: Ring,
        device: torch.device,
        group: dist.ProcessGroup,
        timeout_s: float,
    ) -> None:
        """Opens the memory the sender made. Raises ChannelError where this process may not."""
        self.edge = edge
        self._peer, self._tag, self._group, self._device = peer, tag, group, device
        self._timeout = timedelta(seconds=timeout_s)
        try:
            descriptor = os.open(f"/proc/{ring.pid}/fd/{ring.descriptor}", os.O_RDWR)
        except OSError as error:
            raise ChannelError(
                f"edge {edge}: the memory of process {ring.pid} cannot be shared: {error.strerror}",
                mend="stages of one node must run in one container, as one user",
            ) from error
        try:
            self._slots = _slots(descriptor, ring)
        finally:
            os.close(descriptor)
        self._notes: deque[tuple[torch.Tensor, dist.Work]] = deque()
        for _ in self._slots:
            self._post(torch.tensor([0]))
        self._giving = [torch.tensor([slot]) for slot in range(ring.num_slots)]
        self._given: list[dist.Work | None] = [None] * ring.num_slots

    def _post(self, note: torch.Tensor) -> None:
        try:
            work = dist.irecv(note, group=self._group, tag=self._tag, group_src=self._peer)
        except RuntimeError as error:
            raise lost_neighbour(self.edge, error) from error
        assert work is not None
        self._notes.append((note, work))

    def receive(self) -> Generator[None, None, Message]:
        note, work = self._notes.popleft()
        wait_for(work, self._timeout, self.edge)
        slot = int(note)
        self._post(note)
        message = unpack(self._slots[slot], edge=self.edge)
        message.slot = slot
        if self._device.type != "cpu":
            message.tensors = {name: tensor.to(self._device) for name, tensor in message.tensors.items()}
        return message
        yield

    def release(self, message: Message) -> None:
        if message.slot is None:
            return
        slot, message.slot, message.tensors = message.slot, None, {}
        before = self._given[slot]
        if before is not None:
            wait_for(before, self._timeout, self.edge)
        try:
            self._given[slot] = dist.isend(self._giving[slot], group=self._group, tag=self._tag, group_dst=self._peer)
        except RuntimeError as error:
            raise lost_neighbour(self.edge, error) from error
