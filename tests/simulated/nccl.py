"""A stand-in for NCCL between simulated devices: ranks are threads of this process, or processes of this machine.

It keeps NCCL's rules. Operations of a communicator run in the order in which they were called, in a stream of its own
that waits for the current one. A receive orders the current stream when it is waited for; it holds the host only where
the wait has a time limit. Both ends must send and receive the same shapes and types, in the same order: a mismatch is a
`Fault`, where NCCL hangs or gives rubbish. Two ranks on one device are refused. A sum or a receive that starts while a
sum of another communicator may be under way is a `Fault`: where they start in the other order on another GPU, they may
wait for each other. A stream or the host has to have waited for the first one. A send may start beside a sum.

Memory that the communicator works on may be freed when the host knows that it is done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from alray.core import accelerator

from .order import MACHINE, Event, Stream
from .tensors import SimulatedTensor

_PATIENCE_S = 20.0
_HEADER = 10
_DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


@dataclass
class Wire:
    """What connects the ranks of one communicator."""

    size: int
    devices: dict[int, torch.device] = field(default_factory=dict)
    given: dict[tuple[int, int, int], torch.Tensor] = field(default_factory=dict)
    """What was sent: by sender, receiver and number between the two."""
    sent: dict[tuple[int, int, int], threading.Event] = field(default_factory=dict)
    """Whether it was, taken or not."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    lost: bool = False
    """Whether a rank is gone. Operations of the others then raise what they raise over NCCL."""

    def enter(self, rank: int, device: torch.device) -> None:
        with self.changed:
            if device in self.devices.values():
                raise RuntimeError(f"Duplicate GPU detected : rank {rank} is on {device}, as another rank is")
            self.devices[rank] = device

    def connect(self) -> None:
        """Threads of one process have nothing to connect."""

    def give(self, key: tuple[int, int, int], values: torch.Tensor) -> None:
        with self.changed:
            self.given[key] = values
            self.sent.setdefault(key, threading.Event()).set()
            self.changed.notify_all()

    def take(self, key: tuple[int, int, int]) -> torch.Tensor:
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.given, _PATIENCE_S):
                raise MACHINE.fault(f"rank {key[1]} waits for message {key[2]} of rank {key[0]}, which sends none")
            return self.given.pop(key)


class ProcessWire:
    """What connects the ranks of a communicator that are processes: gloo, which carries what NCCL would.

    It connects with the first operation, as NCCL does: not when it is made.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, timeout_s: float) -> None:
        self.size = size
        self._store, self._rank = store, rank
        self._timeout = timedelta(seconds=min(timeout_s, _PATIENCE_S))
        self._group: Any = None
        self._lock = threading.Lock()
        self._sent: list[tuple[dist.Work, torch.Tensor]] = []
        self._came: dict[tuple[int, int, int], torch.Tensor] = {}
        self._counts: dict[int, int] = {}

    def enter(self, rank: int, device: torch.device) -> None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")  # of which the device is one, by its place
        number = visible.split(",")[device.index] if visible else device.index
        if self._store.add(f"on {number}", 1) > 1:
            raise RuntimeError(f"Duplicate GPU detected : rank {rank} is on {device}, as another rank is")

    def connect(self) -> None:
        """Meet the peers: each waits for the others here."""
        self._connected()

    def _connected(self) -> Any:
        with self._lock:
            if self._group is None:
                store = dist.PrefixStore("wire", self._store)
                self._group = dist.ProcessGroupGloo(store, self._rank, self.size, self._timeout)
            return self._group

    def give(self, key: tuple[int, int, int], values: torch.Tensor) -> None:
        group = self._connected()
        layout = [_DTYPES.index(values.dtype), values.ndim, *values.shape]
        header = torch.tensor([*layout, *[0] * (_HEADER - len(layout))])
        self._sent = [(work, tensor) for work, tensor in self._sent if not work.is_completed()]
        for part in (header, values.contiguous().flatten().view(torch.uint8)):
            self._sent.append((group.send([part], key[1], 0), part))

    def take(self, key: tuple[int, int, int]) -> torch.Tensor:
        group, sender = self._connected(), key[0]
        with self._lock:
            while key not in self._came:
                header = torch.zeros(_HEADER, dtype=torch.int64)
                group.recv([header], sender, 0).wait()
                dtype, ndim, *sizes = header.tolist()
                values = torch.empty(sizes[:ndim], dtype=_DTYPES[dtype])
                content = torch.empty(values.nbytes, dtype=torch.uint8)
                group.recv([content], sender, 0).wait()
                number = self._counts.get(sender, 0)
                self._counts[sender] = number + 1
                self._came[sender, key[1], number] = content.view(values.dtype).view(values.shape)
            return self._came.pop(key)


def between_processes(store: dist.Store, rank: int, size: int, timeout_s: float) -> Any:
    """In the place of `alray.runtime.rendezvous.groups.nccl_group`."""
    return Group(ProcessWire(store, rank, size, timeout_s), rank, accelerator.current())


_LAST_SUMS: dict[int, dict[Group, Event]] = {}
"""The end of the last sum of each communicator, by device."""


@dataclass
class Work:
    """An operation under way, as `dist.Work`."""

    done: Event
    arrive: Callable[[], None] = lambda: None
    came: threading.Event | None = None
    """Set when all peers have sent their part. None: of a receive from another process nobody knows."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        stream = MACHINE.current_stream(self.done.device.index)
        stream.wait_event(self.done)
        if self.came is not None:
            stream.awaits = [*stream.awaits, self.came]
        if timeout is not None:
            self.arrive()
            self.done.synchronize()
        return True

    def is_completed(self) -> bool:
        return self.done.query()


class Group:
    """A communicator, as one of its ranks has it."""

    def __init__(self, wire: Wire | ProcessWire, rank: int, device: torch.device) -> None:
        self._wire, self._rank, self._device = wire, rank, device
        self._stream = Stream(device)
        self._counts: dict[tuple[int, int], int] = {}
        self.aborted = False
        wire.enter(rank, device)

    def name(self) -> str:
        return "nccl"

    def end(self) -> None:
        """As where the process of this rank ends."""
        assert isinstance(self._wire, Wire), "a process ends itself"
        self._wire.lost = True

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._wire.size

    def abort(self) -> None:
        self.aborted = True

    def _number(self, sender: int, receiver: int) -> tuple[int, int, int]:
        number = self._counts.get((sender, receiver), 0)
        self._counts[sender, receiver] = number + 1
        return sender, receiver, number

    def _require(self, tensor: Any) -> SimulatedTensor:
        if self.aborted:
            raise RuntimeError(f"NCCL communicator was aborted on rank {self._rank}.")
        if isinstance(self._wire, Wire) and self._wire.lost:
            raise dist.DistBackendError(
                "NCCL error: remote process exited or there was a network error\nncclRemoteError: "
                "A call failed possibly due to a network error or a remote process exiting prematurely."
            )
        if not isinstance(tensor, SimulatedTensor) or tensor.device != self._device or not tensor.is_contiguous():
            raise RuntimeError(f"Tensors must be contiguous and on {self._device}")
        tensor.block.arrive()  # a stage may pass on what it received
        return tensor

    def _launch(self, what: str, reads: list[Any], writes: list[Any]) -> Event:
        """An operation in the stream of the communicator, after what the current stream has been given."""
        self._stream.wait_stream(MACHINE.current_stream(self._device.index))
        with self._stream:
            MACHINE.launch(what, self._device.index, [each.block for each in reads], [each.block for each in writes])
            return self._stream.record_event()

    def _launch_sum(self, what: str, reads: list[Any], writes: list[Any]) -> Event:
        with MACHINE.lock:
            self._require_no_sum_beside(what)
            done = self._launch(what, reads, writes)
            _LAST_SUMS.setdefault(self._device.index, {})[self] = done
            return done

    def _require_no_sum_beside(self, what: str) -> None:
        current = MACHINE.current_stream(self._device.index)
        last = _LAST_SUMS.get(self._device.index, {})
        if any(group is not self and not done.is_before(current) for group, done in last.items()):
            raise MACHINE.fault(f"{what} of rank {self._rank} starts beside a sum of another communicator")

    def send(self, tensors: list[Any], peer: int, tag: int) -> Work:
        (tensor,) = map(self._require, tensors)
        done = self._launch("send", [tensor], [])
        self._wire.give(self._number(self._rank, peer), tensor.held.clone())
        return Work(done)

    def recv(self, tensors: list[Any], peer: int, tag: int) -> Work:
        (tensor,) = map(self._require, tensors)
        with MACHINE.lock:
            self._require_no_sum_beside("recv")
            done = self._launch("recv", [], [tensor])
        key = self._number(peer, self._rank)
        self._wire.connect()
        sent = self._wire.sent.setdefault(key, threading.Event()) if isinstance(self._wire, Wire) else None
        return Work(done, self._expect(tensor, lambda: self._wire.take(key)), sent)

    def _expect(self, tensor: SimulatedTensor, come: Callable[[], torch.Tensor]) -> Callable[[], None]:
        """The values come when somebody uses them: operations run at once here, and the peer may not have sent yet."""

        def arrive() -> None:
            if arrive not in tensor.block.expected:
                return
            tensor.block.expected.remove(arrive)
            values = come()
            if (values.shape, values.dtype) != (tensor.held.shape, tensor.held.dtype):
                raise MACHINE.fault(
                    f"rank {self._rank} receives {tuple(tensor.shape)} of {tensor.dtype}, and its peer sends "
                    f"{tuple(values.shape)} of {values.dtype}"
                )
            tensor.held.copy_(values)

        tensor.block.expected.append(arrive)
        return arrive

    def _from_all(self, own: torch.Tensor) -> tuple[Callable[[], list[torch.Tensor]], threading.Event]:
        """Send a tensor to all others; gives what all ranks have sent, in their order, and whether it has come."""
        others = [rank for rank in range(self.size()) if rank != self._rank]
        for rank in others:
            self._wire.give(self._number(self._rank, rank), own.clone())
        keys = {rank: self._number(rank, self._rank) for rank in others}
        came = threading.Event()

        def come() -> list[torch.Tensor]:
            parts = [own if rank == self._rank else self._wire.take(keys[rank]) for rank in range(self.size())]
            came.set()
            return parts

        return come, came

    def allreduce(self, tensor: Any, operation: Any, timeout: timedelta) -> Work:
        tensor = self._require(tensor)
        done = self._launch_sum("allreduce", [tensor], [tensor])
        come, came = self._from_all(tensor.held.clone())
        return Work(done, self._expect(tensor, lambda: torch.stack(come()).sum(0)), came)

    def allgather(self, rows: list[Any], own: Any, timeout: timedelta) -> Work:
        rows, own = [self._require(row) for row in rows], self._require(own)
        done = self._launch_sum("allgather", [own], rows)
        come, came = self._from_all(own.held.clone())

        def arrive() -> None:
            for row, values in zip(rows, come(), strict=True):
                row.held.copy_(values)

        block = rows[0].block

        def once() -> None:
            if once in block.expected:
                block.expected.remove(once)
                arrive()

        block.expected.append(once)
        return Work(done, once, came)
