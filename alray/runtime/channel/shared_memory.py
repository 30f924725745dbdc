"""Edges between processes of one host: tensors lie in a ring of shared memory, notices travel over pipes.

The sender writes a message once, into memory from which the receiver computes; nothing is copied on the way. On two
cores a message of 2 MB over gloo's sockets took 2 to 3 ms of a stage's time; over shared memory it takes only the
packing. One pipe tells the receiver which slot was filled, another tells the sender which slot is free again; each
notice costs one wake-up.

The memory has no name: the receiver opens it through the sender's file descriptor, so nothing is left behind when a
process ends.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from alray.core.errors import ChannelError
from alray.runtime.channel.edge import Receiver, Sender, Waiting
from alray.runtime.channel.host_pipe import Descriptors, ReadEnd, write_and_yield
from alray.runtime.channel.message import HEADER_BYTES, Message, Slot
from alray.runtime.channel.pinned import Pinned, await_copies, to_device
from alray.runtime.channel.slow_link import SlowLink, wait_until_arrived

_CPU = torch.device("cpu")
_SLOT = struct.Struct("I")
_OPENED = 2**32 - 1  # sent in place of a slot number: the receiver has opened its ends


@dataclass(frozen=True)
class SlotRing(Descriptors):
    """The shared memory and pipes of an edge; the sender sends this to the receiver."""

    # Descriptors of the sender's process:
    memory: int  # the slots
    filled: int  # the end from which the receiver reads the numbers of filled slots
    free: int  # the end into which the receiver writes the numbers of free slots
    slot_bytes: int
    num_slots: int


class _TwoParts:
    """A slot of the ring. It holds a whole message, or a message in two parts, the second after the first."""

    def __init__(self, buffer: torch.Tensor, capacity_bytes: int) -> None:
        """
        Args:
            capacity_bytes: the largest size of a message in one part.
        """
        self._buffer = buffer[: capacity_bytes + HEADER_BYTES]
        self.first = Slot(buffer[:capacity_bytes])
        self._second: tuple[int, Slot] | None = None

    def second(self, offset: int) -> Slot:
        """Return the slot after a first part of `offset` bytes. It is kept: the offset is the same in each step."""
        if self._second is None or self._second[0] != offset:
            self._second = (offset, Slot(self._buffer[offset:]))
        return self._second[1]


def _mapped(descriptor: int, ring: SlotRing) -> torch.Tensor:
    """Map the shared memory, as one flat tensor."""
    return torch.frombuffer(mmap.mmap(descriptor, ring.slot_bytes * ring.num_slots), dtype=torch.uint8)


def _slots(memory: torch.Tensor, ring: SlotRing, capacity_bytes: int) -> list[_TwoParts]:
    """The memory as slots. Each slot starts on a page."""
    return [_TwoParts(buffer, capacity_bytes) for buffer in memory.split(ring.slot_bytes)]


@dataclass(frozen=True)
class _HalfSent:
    """A message whose first part has been sent."""

    slot: int
    nbytes: int
    names: frozenset[str]


class SharedMemorySender(Sender):
    """Writes a message into a free slot and tells the receiver which slot it is. Waits if no slot is free.

    If the receiver gives no slot back, `send` returns `in_flight + 1` times: for the message that the receiver works
    on, and for the `in_flight` messages that wait.
    """

    def __init__(
        self,
        *,
        edge: str,
        capacity_bytes: int,
        in_flight: int,
        timeout_s: float,
        device: torch.device = _CPU,
        link: SlowLink | None = None,
    ) -> None:
        """Make the memory and the pipes. `in_flight` messages may wait while the receiver works on one more.

        Args:
            device: that of the stage.
            link: delays the messages; None: they arrive at once.
        """
        self.edge = edge
        self.bytes_sent = 0
        self._timeout_s = timeout_s
        self._link = link
        page = mmap.PAGESIZE
        slot_bytes = -(-(capacity_bytes + HEADER_BYTES) // page) * page  # the second part needs a header, too
        memory = os.memfd_create(f"alray-{edge}", os.MFD_CLOEXEC)
        filled, self._filled = os.pipe()
        free_again, free = os.pipe()
        self._free_again = ReadEnd(free_again)
        self.ring = SlotRing(os.getpid(), memory, filled, free, slot_bytes, in_flight + 1)
        os.ftruncate(memory, slot_bytes * self.ring.num_slots)
        mapped = _mapped(memory, self.ring)
        self._pinned = Pinned(mapped, device)
        self._slots = _slots(mapped, self.ring, capacity_bytes)
        self._begun: _HalfSent | None = None
        self._holds_all = True
        self._free = list(range(self.ring.num_slots))  # used from the end: that slot is still in the processor's cache

    def _take_back(self) -> None:
        """Take the slots that the receiver gave back. Waits until there is at least one."""
        try:
            words = self._free_again.read(_SLOT.size * (len(self._slots) + 1), self._timeout_s)
        except (TimeoutError, BrokenPipeError) as error:
            raise _lost_neighbour(self.edge, error) from error
        for (slot,) in _SLOT.iter_unpack(words):
            if slot == _OPENED:
                # The receiver must be the only holder of its ends, so that they close when its process ends.
                self._leave_ends_to_receiver()
            else:
                self._free.append(slot)

    def _leave_ends_to_receiver(self) -> None:
        """Close the descriptors that this process made for the receiver, which has opened them for itself."""
        self._holds_all = False
        for descriptor in (self.ring.filled, self.ring.free, self.ring.memory):
            os.close(descriptor)

    def close(self) -> None:
        if self._holds_all:
            self._leave_ends_to_receiver()
        self._pinned.close()
        os.close(self._filled)
        self._free_again.close()

    def begin(self, message: Message) -> Waiting[None]:
        assert self._begun is None, "the message before this one is not complete"
        message.more = True
        self._begun = _HalfSent(*self._send_first(message), frozenset(message.tensors))
        return
        yield  # makes this a generator; it blocks and never yields

    def send(self, message: Message) -> Waiting[None]:
        begun, self._begun = self._begun, None
        if begun is None:
            self._send_first(message)
        else:
            rest = {name: tensor for name, tensor in message.tensors.items() if name not in begun.names}
            part = Message(message.kind, message.step, rest)
            self._enter_link(part)
            nbytes = self._slots[begun.slot].second(begun.nbytes).write(part, edge=self.edge)
            # The receiver already works on the first part, so there is no need to yield the processor to it.
            self._hand_over(begun.slot, nbytes, os.write)
        return
        yield

    def _send_first(self, message: Message) -> tuple[int, int]:
        """Send a message, or the first part of one. Returns its slot and its bytes."""
        slot = self._free_slot()
        self._enter_link(message)
        nbytes = self._slots[slot].first.write(message, edge=self.edge)
        self._free.pop()
        self._hand_over(slot, nbytes, write_and_yield)
        return slot, nbytes

    def _enter_link(self, message: Message) -> None:
        if self._link is not None:
            self._link.take(message)

    def _free_slot(self) -> int:
        """Return a free slot. Waits if there is none."""
        if self._free_again.is_ready():
            self._take_back()
        while not self._free:
            self._take_back()
        return self._free[-1]

    def _hand_over(self, slot: int, nbytes: int, write: Callable[[int, bytes], object]) -> None:
        try:
            write(self._filled, _SLOT.pack(slot))
        except BrokenPipeError as error:
            raise _lost_neighbour(self.edge, error) from error
        self.bytes_sent += nbytes


class SharedMemoryReceiver(Receiver):
    """Reads messages in the slots that the sender wrote. A slot goes back to the sender in `release`."""

    def __init__(self, *, edge: str, ring: SlotRing, device: torch.device, timeout_s: float) -> None:
        """Open the memory and pipes of the sender. Raises ChannelError if this process may not open them."""
        self.edge = edge
        self._device = device
        self._timeout_s = timeout_s
        try:
            memory = ring.opened(ring.memory, os.O_RDWR)
            self._filled = ReadEnd(ring.opened(ring.filled, os.O_RDONLY))
            self._free = ring.opened(ring.free, os.O_WRONLY)
        except OSError as error:
            raise ChannelError(
                f"edge {edge}: the memory of process {ring.pid} cannot be shared: {error.strerror}",
                hint="run all stages of a node in one container and as one user",
            ) from error
        try:
            mapped = _mapped(memory, ring)
        finally:
            os.close(memory)
        self._pinned = Pinned(mapped, device)
        self._slots = _slots(mapped, ring, ring.slot_bytes)
        self._told: deque[int] = deque()  # slots that `waiting` has read from the pipe, one for each part of a message
        self._give(_OPENED)

    def receive(self) -> Waiting[Message]:
        slot = self._next_slot()
        message = self._slots[slot].first.read(edge=self.edge)
        message.slot = slot
        wait_until_arrived(message)
        to_device(message, self._device)
        return message
        yield

    def complete(self, message: Message) -> Waiting[None]:
        if message.more:
            slot = self._next_slot()
            assert slot == message.slot, "the second part of a message must follow the first"
            slots = self._slots[slot]
            rest = slots.second(slots.first.nbytes).read(edge=self.edge)
            wait_until_arrived(rest)
            to_device(rest, self._device)
            message.tensors |= rest.tensors
            message.more = False
            message.copied = rest.copied
        return
        yield

    def _next_slot(self) -> int:
        if self._told:
            return self._told.popleft()
        try:
            word = self._filled.read(_SLOT.size, self._timeout_s)
        except (TimeoutError, BrokenPipeError) as error:
            raise _lost_neighbour(self.edge, error) from error
        (slot,) = _SLOT.unpack(word)
        return int(slot)

    def release(self, message: Message) -> None:
        if message.slot is None:
            return
        await_copies(message)
        slot = message.slot
        message.slot = None
        message.tensors = {}
        self._give(slot)

    def waiting(self) -> int:
        words = self._filled.read_ready(_SLOT.size * 2 * len(self._slots))
        self._told += [int(slot) for (slot,) in _SLOT.iter_unpack(words)]
        return len(set(self._told))

    def close(self) -> None:
        self._pinned.close()
        self._filled.close()
        os.close(self._free)

    def _give(self, slot: int) -> None:
        try:
            write_and_yield(self._free, _SLOT.pack(slot))
        except BrokenPipeError as error:
            raise _lost_neighbour(self.edge, error) from error


def _lost_neighbour(edge: str, error: OSError) -> ChannelError:
    state = "silent" if isinstance(error, TimeoutError) else "gone"
    return ChannelError(f"edge {edge}: the neighbour is {state}", hint="look for the error of its stage")
