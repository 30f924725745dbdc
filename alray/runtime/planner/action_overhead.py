"""What a computation on a micro-batch costs a stage besides the computation itself.

That is the time of the list, of the clock, and of a message with nothing in it. A stage of a pipeline whose components
compute nothing is run, over the shared memory that an edge of one host has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch

from alray.models.encoder import Tensors
from alray.planning.schedules.table import default_schedule
from alray.runtime.channel.edge import T, Waiting
from alray.runtime.channel.inbox import Inbox
from alray.runtime.channel.message import Message, MessageKind, packed_bytes
from alray.runtime.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.stage import MiniBatch, Stage
from alray.runtime.stage.work.work import ComponentLosses, MicroBatch, Work

_MICRO_BATCHES = 8
_MINI_BATCHES = 20
_TIMEOUT_S = 60.0


def time_action_overhead() -> float:
    """Seconds for each computation: the median over some mini-batches."""
    actions = default_schedule(local_losses=False, stages=2).actions(1, 2, 0, _MICRO_BATCHES, 1)
    stage = Stage(_Nothing([]), actions, micro_batches=_MICRO_BATCHES)
    clock = Clock(started_wall_s=time.time(), start_step=0)
    times = []
    with _edge("0->1") as (fills, inbox), _edge("1->0") as (outlet, drains):
        ports = Ports(up_from=[inbox], down_to=[outlet])
        for step in range(1, _MINI_BATCHES + 1):
            for number in range(_MICRO_BATCHES):
                sample = {"s": torch.zeros(1), "labels": torch.zeros(1)}
                _done(fills.send(Message(MessageKind.TRAIN, step, sample, virtual=1, micro_batch=number)))
            began = time.perf_counter()
            _done(stage.mini_batch(MiniBatch(step, 0.0, _MICRO_BATCHES), ports, clock))
            times.append(time.perf_counter() - began)
            clock.step_done()
            for number in range(_MICRO_BATCHES):
                drains.release(_done(drains.take(MessageKind.GRADIENT, step, 0, number)))
    return median(times) / (2 * _MICRO_BATCHES)


@contextmanager
def _edge(name: str) -> Iterator[tuple[SharedMemorySender, Inbox]]:
    """Both ends of an edge, in this process."""
    sender = SharedMemorySender(
        edge=name, capacity_bytes=packed_bytes([8, 8]), in_flight=_MICRO_BATCHES, timeout_s=_TIMEOUT_S
    )
    receiver = SharedMemoryReceiver(edge=name, ring=sender.ring, device=torch.device("cpu"), timeout_s=_TIMEOUT_S)
    try:
        yield sender, Inbox(receiver)
    finally:
        receiver.close()
        sender.close()


def _done(waiting: Waiting[T]) -> T:
    """The result of an operation that never has to wait."""
    try:
        next(waiting)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise AssertionError("an edge between processes never yields")


class _Nothing(Work):
    def forward(self, batch: MicroBatch) -> None: ...

    def backward(self, batch: MicroBatch) -> ComponentLosses:
        batch.to_below = {"s": batch.incoming["s"]}
        return {}

    def update(self, lr: float, own: int = 0, *, step: int) -> None: ...

    def _infer_up(self, incoming: Tensors, step: int, batch: int, own: int) -> tuple[Tensors, list[torch.Tensor]]:
        return incoming, []

    def infer_down(self, routes: list[torch.Tensor], own: int = 0) -> list[torch.Tensor]:
        return routes
