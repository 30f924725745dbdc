"""Streams, events and memory of the simulated devices: who waits for what.

Each stream has a vector clock, and so has the host (`torch.cuda._sanitizer`, which checks programs on a GPU in this
way, has the clocks). Memory knows the last operation that wrote it, and those that have read it since.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import RawArray
from typing import Any

import torch
from torch.cuda._sanitizer import StreamSynchronizations

KIND = "sim"
TOTAL_BYTES = 8_000_000_000


class Fault(AssertionError):
    """What a GPU would punish, now and then."""


class Stream:
    """Takes the place of `torch.Stream`."""

    def __init__(self, device: torch.device | str | int | None = None, *, number: int | None = None) -> None:
        self.device = torch.device(KIND, MACHINE.index_of(device))
        self.number = MACHINE.new_number() if number is None else number
        self._before: list[tuple[int, Stream]] = []
        self.awaits: list[threading.Event] = []
        """What peers have to send before what comes next in the stream can run."""
        MACHINE.add_stream(self.number, self.device.index)

    def __repr__(self) -> str:
        return f"stream {self.number} of {self.device}"

    def query(self) -> bool:
        return MACHINE.host_knows(self)

    def is_capturing(self) -> bool:
        return False

    def synchronize(self) -> None:
        MACHINE.host_waits_for_stream(self)

    def record_event(self, event: Event | None = None) -> Event:
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())

    def __enter__(self) -> Stream:
        self._before.append((MACHINE.current_index(), MACHINE.current_stream(self.device.index)))
        MACHINE.exchange_index(self.device.index)
        MACHINE.set_stream(self)
        return self

    def __exit__(self, *raised: object) -> None:
        index, stream = self._before.pop()
        MACHINE.set_stream(stream)
        MACHINE.exchange_index(index)


class Event:
    """Takes the place of `torch.Event`. It has passed when the host has waited for it, or for what comes after it."""

    def __init__(
        self,
        device: torch.device | str | None = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.device = torch.device(KIND, MACHINE.index_of(device))
        self._timed = enable_timing
        self._number = MACHINE.new_number()
        self._stream: Stream | None = None
        self._passes_at = 0
        self._time_s = 0.0
        self._asked = False
        self._awaits: list[threading.Event] = []

    def record(self, stream: Stream | None = None) -> None:
        MACHINE.require_current_device(self.device.index, "records an event")
        stream = MACHINE.current_stream(self.device.index) if stream is None else stream
        if stream.device != self.device:
            raise RuntimeError(f"an event of {self.device} recorded in {stream}")
        with MACHINE.lock:
            self._passes_at = MACHINE.begin_operation(stream)
            MACHINE.clocks.create_event(self._number)
            MACHINE.clocks.record_state(self._number, stream.number)
        self._stream, self._time_s, self._asked = stream, time.perf_counter(), False
        self._awaits = stream.awaits = [each for each in stream.awaits if not each.is_set()]

    def wait(self, stream: Stream | None = None) -> None:
        if self._stream is None:
            return  # as on a GPU
        stream = MACHINE.current_stream(self.device.index) if stream is None else stream
        with MACHINE.lock:
            MACHINE.clocks.stream_wait_for_event(stream.number, self._number)

    def query(self) -> bool:
        """The first answer after a record is no: the device is not that fast."""
        MACHINE.require_current_device(self.device.index, "asks for an event")
        if not all(each.is_set() for each in self._awaits):
            return False
        if self._stream is None or self._has_passed():
            return True
        self._asked, asked = True, self._asked
        if asked:
            self.synchronize()
        return asked

    def synchronize(self) -> None:
        MACHINE.require_current_device(self.device.index, "waits for an event")
        if self._stream is not None:
            MACHINE.host_waits_for_event(self._number)

    def elapsed_time(self, end: Event) -> float:
        if not (self._timed and end._timed):
            raise ValueError("both events must be created with argument 'enable_timing=True'")
        if not (self._has_passed() and end._has_passed()):
            raise MACHINE.fault("the time between two events was asked for before they had passed")
        return 1e3 * (end._time_s - self._time_s)

    def is_before(self, stream: Stream) -> bool:
        """Whether what comes next in a stream comes after this event."""
        if self._stream is None or self._has_passed():
            return True
        return bool(MACHINE.clocks.is_ordered_after(stream.number, self._passes_at, self._stream.number))

    def __del__(self) -> None:
        if self._stream is not None and sys is not None and not sys.is_finalizing():  # None: at the end of Python
            with suppress(Fault):  # it is noted
                MACHINE.require_current_device(self.device.index, "lets go of an event")

    def _has_passed(self) -> bool:
        return self._stream is not None and MACHINE.host_has_passed(self._stream, self._passes_at)


@dataclass(eq=False)
class Block:
    """Memory of a device: one allocation. It is freed when no tensor has it any more."""

    index: int
    nbytes: int
    stream: Stream
    """In which it was allocated, and in which it will be used again."""
    wrote: tuple[Stream, int] | None = None
    read: dict[int, tuple[Stream, int]] = field(default_factory=dict)
    used: dict[int, tuple[Stream, int]] = field(default_factory=dict)
    """Its last use in each stream."""
    recorded: set[int] = field(default_factory=set)
    """Streams that it was given to by `record_stream`."""
    expected: list[Any] = field(default_factory=list)
    """What brings values that a peer has still to send."""

    def arrive(self) -> None:
        for come in list(self.expected):
            come()

    def __del__(self) -> None:
        if sys is not None and not sys.is_finalizing():  # None: at the end of Python
            MACHINE.free(self)


@dataclass(eq=False)
class LateCopy:
    """A copy between a device and pinned host memory, for which the host has not waited."""

    host: torch.Tensor
    content: torch.Tensor
    """To the host: what will arrive. From the host: what was there when the copy was asked for."""
    to_host: bool
    stream: Stream
    at: int

    def overlaps(self, tensor: torch.Tensor) -> bool:
        (first, last), (begin, end) = extent(self.host), extent(tensor)
        return first < end and begin < last


@dataclass
class Usage:
    """Bytes of one device."""

    allocated: int = 0
    peak: int = 0
    reserved: int = 0
    most_reserved: int = 0


class Reserved:
    """The bytes of device 0 that each of the processes reserves that are forked from this one."""

    def __init__(self) -> None:
        self._bytes = RawArray("q", 64)

    def tell(self, nbytes: int) -> None:
        self._bytes[os.getpid() % 64] = nbytes

    @property
    def elsewhere(self) -> int:
        own = os.getpid() % 64
        return sum(nbytes for slot, nbytes in enumerate(self._bytes) if slot != own)


class Machine:
    """All simulated devices of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.count = 2
        self.limit_bytes = TOTAL_BYTES
        self.shared: Reserved | None = None
        """Where processes share the memory of device 0."""
        self.faults: list[Fault] = []
        self.trips = 0  # waits of the host for a device
        self.clocks = StreamSynchronizations()
        self._operations = itertools.count(1)
        self._numbers = itertools.count(1000)
        self._of_thread = threading.local()
        self._first: dict[int, Stream] = {}
        self._late: list[LateCopy] = []
        self._usage: dict[int, Usage] = {}
        self._streams: dict[int, int] = {}  # the device of each, by number
        self._pinned: dict[int, int] = {}  # the end of each piece of memory, by its begin
        self._owners: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def fault(self, what: str) -> Fault:
        found = Fault(what)
        self.faults.append(found)
        return found

    # Devices and streams of the calling thread

    def new_number(self) -> int:
        return next(self._numbers)

    def add_stream(self, number: int, index: int) -> None:
        with self.lock:
            self._streams[number] = index
            self.clocks.create_stream(number)

    def index_of(self, device: torch.device | str | int | None) -> int:
        if isinstance(device, int):
            index = device
        else:
            given = None if device is None else torch.device(device)
            if given is not None and given.type != KIND:
                raise RuntimeError(f"{given} is no simulated device")
            index = self.current_index() if given is None or given.index is None else given.index
        if not 0 <= index < self.count:
            raise RuntimeError(f"invalid device ordinal {index}: there are {self.count} simulated devices")
        return index

    def current_index(self) -> int:
        return getattr(self._of_thread, "index", 0)

    def require_current_device(self, index: int, what: str) -> None:
        """Raise Fault where a thread that has no current device does this with one of another device than the first.

        CUDA then sets up the first one for it, which takes 500 MB there (issue 135279 of pytorch).
        """
        if index > 0 and self.current_index() == 0 and not hasattr(self._of_thread, "chosen"):
            raise self.fault(f"a thread that has no current device {what} of device {index}: that sets up device 0")

    def set_index(self, index: int) -> None:
        self.exchange_index(index)
        self._of_thread.chosen = True

    def exchange_index(self, index: int) -> int:
        before = self.current_index()
        if index >= 0:
            self._of_thread.index = self.index_of(index)
        return before

    def current_stream(self, index: int | None = None) -> Stream:
        index = self.current_index() if index is None or index < 0 else index
        streams: dict[int, Stream] = self._of_thread.__dict__.setdefault("streams", {})
        return streams[index] if index in streams else self._first_stream(index)

    def _first_stream(self, index: int) -> Stream:
        with self.lock:
            if index not in self._first:
                self._first[index] = Stream(index, number=index + 1)
            return self._first[index]

    def set_stream(self, stream: Stream) -> None:
        self._of_thread.__dict__.setdefault("streams", {})[stream.device.index] = stream

    def of_thread(self) -> dict[str, Any]:
        """The current device and streams of the calling thread, for `take_over` in another one."""
        known = dict(self._of_thread.__dict__)
        return {**known, "streams": dict(known.get("streams", {}))}

    def take_over(self, of_thread: dict[str, Any]) -> None:
        self._of_thread.__dict__.update(of_thread)

    # Operations

    def begin_operation(self, stream: Stream) -> int:
        number = next(self._operations)
        self.clocks.update_seq_num(stream.number, number)
        return number

    def launch(self, what: str, index: int, reads: Iterable[Block], writes: Iterable[Block]) -> tuple[Stream, int]:
        """An operation of the current stream of a device. Raises Fault if it may run too early."""
        stream = self.current_stream(index)
        with self.lock:
            number = self.begin_operation(stream)
            written = {id(block): block for block in writes}
            for block in {id(block): block for block in reads if id(block) not in written}.values():
                self._require(block.wrote, stream, f"{what} in {stream} reads what", block)
                block.read[stream.number] = block.used[stream.number] = (stream, number)
            for block in written.values():
                self._require(block.wrote, stream, f"{what} in {stream} overwrites what", block)
                for reader in block.read.values():
                    self._require(reader, stream, f"{what} in {stream} overwrites what", block)
                block.wrote = block.used[stream.number] = (stream, number)
                block.read = {}
            return stream, number

    def _require(self, before: tuple[Stream, int] | None, stream: Stream, what: str, block: Block) -> None:
        if before is None:
            return
        other, number = before
        if not self.clocks.is_ordered_after(stream.number, number, other.number):
            raise self.fault(f"{what} {other} still works on ({block.nbytes} bytes): it has to wait for it")

    def join(self, one: Stream, other: Stream) -> None:
        """Each of two streams waits for the other, as for a copy from device to device."""
        with self.lock:
            for waits, before in ((one, other), (other, one)):
                clocks = self.clocks.current_sync_states
                self.clocks._state_wait_for_other(clocks[waits.number], clocks[before.number])

    # The host

    def host_knows(self, stream: Stream) -> bool:
        with self.lock:
            own = self.clocks.current_sync_states[stream.number].get(stream.number, 0)
            return self.host_has_passed(stream, own)

    def host_has_passed(self, stream: Stream, number: int) -> bool:
        return self.clocks.host_sync_state.get(stream.number, 0) >= number

    def host_waits_for_stream(self, stream: Stream) -> None:
        with self.lock:
            self.trips += 1
            self.clocks.all_streams_wait_for_stream(stream.number)
            self._settle()

    def host_waits_for_event(self, number: int) -> None:
        with self.lock:
            self.trips += 1
            self.clocks.all_streams_wait_for_event(number)
            self._settle()

    def host_waits_for_device(self, index: int = -1) -> None:
        index = self.current_index() if index < 0 else index
        with self.lock:
            self.trips += 1
            for number, at in self._streams.items():
                if at == index:
                    self.clocks.all_streams_wait_for_stream(number)
            self._settle()

    # Pinned memory

    def pin(self, tensor: torch.Tensor) -> int:
        begin, end = extent(tensor)
        self._pinned[begin] = end
        return begin

    def pin_storage(self, tensor: torch.Tensor) -> torch.Tensor:
        """Pin the memory of a tensor for as long as it is there."""
        begin = self.pin(tensor)

        def gone(_: object) -> None:
            del self._pinned[begin], self._owners[begin]

        self._owners[begin] = weakref.ref(tensor.untyped_storage(), gone)
        return tensor

    def unpin(self, begin: int) -> None:
        end = self._pinned.pop(begin)
        with self.lock:
            for late in self._late:
                first, last = extent(late.host)
                if first < end and begin < last:
                    raise self.fault("host memory was unpinned while a device still copies from it or to it")

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        begin, end = extent(tensor)
        return any(first <= begin and end <= last for first, last in list(self._pinned.items()))

    def copy_later(self, host: torch.Tensor, content: torch.Tensor, *, to_host: bool, at: tuple[Stream, int]) -> None:
        """A copy that the host has not waited for. To the host: what it sees until then is rubbish."""
        with self.lock:
            for late in [each for each in self._late if each.overlaps(host)]:
                if not self.clocks.is_ordered_after(at[0].number, late.at, late.stream.number):
                    raise self.fault(f"{at[0]} copies from or to host memory that {late.stream} still copies")
                self._end(late)
            self._late.append(LateCopy(host, content, to_host, *at))
            if to_host:
                host.copy_(rubbish_like(content))

    def before_copy_from(self, host: torch.Tensor, stream: Stream) -> None:
        """The memory from which a stream copies now has what copies before have brought, if the stream comes after."""
        with self.lock:
            for late in [each for each in self._late if each.to_host and each.overlaps(host)]:
                if not self.clocks.is_ordered_after(stream.number, late.at, late.stream.number):
                    raise self.fault(f"{stream} copies from host memory that {late.stream} still fills")
                self._end(late)

    def _settle(self) -> None:
        for late in [each for each in self._late if self.host_has_passed(each.stream, each.at)]:
            self._end(late)

    def _end(self, late: LateCopy) -> None:
        self._late.remove(late)
        if late.to_host:
            late.host.copy_(late.content)
        elif not same_bytes(late.host, late.content):
            raise self.fault("the host changed pinned memory from which a device was still to copy")

    # Memory of the devices

    def usage(self, index: int) -> Usage:
        return self._usage.setdefault(index, Usage())

    def require_room(self, index: int, nbytes: int) -> None:
        free = self.limit_bytes - self.usage(index).allocated - self._elsewhere(index)
        if nbytes > free:
            raise torch.OutOfMemoryError(
                f"{KIND} out of memory. Tried to allocate {nbytes} bytes. Device {index} has {self.limit_bytes}, of "
                f"which {free} are free."
            )

    def _elsewhere(self, index: int) -> int:
        return 0 if self.shared is None or index else self.shared.elsewhere

    def allocate(self, index: int, nbytes: int) -> Block:
        usage = self.usage(index)
        with self.lock:
            self.require_room(index, nbytes)
            usage.allocated += nbytes
            usage.peak = max(usage.peak, usage.allocated)
            usage.reserved = max(usage.reserved, usage.allocated)
            usage.most_reserved = max(usage.most_reserved, usage.reserved)
            if usage.reserved > self.limit_bytes - self._elsewhere(index):
                usage.reserved = usage.allocated  # torch gives back what it keeps before it fails
            self._tell()
        return Block(index, nbytes, self.current_stream(index))

    def free(self, block: Block) -> None:
        with self.lock:
            self.usage(block.index).allocated -= block.nbytes
            for stream, number in block.used.values():
                known = self.clocks.is_ordered_after(block.stream.number, number, stream.number)
                if not known and stream.number not in block.recorded:
                    self.fault(f"memory of {block.stream} ({block.nbytes} bytes) was freed while {stream} may use it")

    def empty_cache(self) -> None:
        for usage in self._usage.values():
            usage.reserved = usage.allocated
        self._tell()

    def _tell(self) -> None:
        if self.shared is not None:
            self.shared.tell(self.usage(0).reserved)

    def stats(self, index: int) -> dict[str, Any]:
        usage = self.usage(self.current_index() if index < 0 else index)
        return {
            "allocated_bytes": {"all": {"current": usage.allocated, "peak": usage.peak}},
            "reserved_bytes": {"all": {"current": usage.reserved, "peak": usage.most_reserved}},
        }

    def reset_peak(self, index: int) -> None:
        usage = self.usage(self.current_index() if index < 0 else index)
        usage.peak, usage.most_reserved = usage.allocated, usage.reserved

    def memory_info(self, index: int) -> tuple[int, int]:
        usage = self.usage(self.current_index() if index < 0 else index)
        return self.limit_bytes - usage.reserved, self.limit_bytes


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The first address of a tensor in host memory, and the one after its last."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * tensor.element_size()


def rubbish_like(tensor: torch.Tensor) -> torch.Tensor:
    """Other values than those of the tensor, that nobody computes with unnoticed."""
    if tensor.dtype == torch.bool:
        return ~tensor
    return torch.full_like(tensor, float("nan") if tensor.is_floating_point() else 77)


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().flatten().view(torch.uint8), other.contiguous().flatten().view(torch.uint8))


MACHINE = Machine()
