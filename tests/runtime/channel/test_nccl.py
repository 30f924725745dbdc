"""The two parts of a message from GPU to GPU. Here gloo takes the place of NCCL, and a CPU that of both GPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from alray.runtime.channel.in_process import Queue
from alray.runtime.channel.message import CutFlag, Message, MessageKind
from alray.runtime.channel.nccl import HEADER_CAPACITY, NcclReceiver, NcclSender
from alray.runtime.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender

from .conftest import driven

CPU = torch.device("cpu")
MESSAGES = [
    Message(
        MessageKind.TRAIN,
        1,
        {
            "s": torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1)),
            "mask": torch.ones(3, 2, dtype=torch.bool),
            "labels": torch.arange(3),
        },
    ),
    Message(MessageKind.TRAIN, 2, {"s": torch.ones(2, 5).bfloat16(), "empty": torch.empty(0, 4)}),
    Message(MessageKind.CUT, 2, {}, flags=CutFlag.EVALUATE | CutFlag.STOP, count=7),
    Message(MessageKind.EVALUATE, 0, {"s": torch.arange(12.0).view(3, 4).t()}),
]


def test_messages_arrive_whole_and_in_order(on_ranks: Callable[..., list[Any]]) -> None:
    queue = Queue("0->1", in_flight=2)

    def work(rank: int, group: Any) -> Any:
        if rank == 0:
            sender = NcclSender(edge="0->1", headers=queue, group=group, device=CPU, timeout_s=20.0)
            sender.connect()
            for message in MESSAGES:
                driven(sender.send(message))
            driven(sender.flush())
            return sender.bytes_sent
        receiver = NcclReceiver(edge="0->1", headers=queue, group=group, device=CPU)
        receiver.connect()
        came = []
        for _ in MESSAGES:
            message = driven(receiver.receive())
            came.append((message.kind, message.step, message.flags, message.count, dict(message.tensors)))
            receiver.release(message)
        return came

    nbytes, came = on_ranks(2, work)
    assert nbytes == sum(tensor.nbytes for message in MESSAGES for tensor in message.tensors.values())
    for message, (*facts, tensors) in zip(MESSAGES, came, strict=True):
        assert facts == [message.kind, message.step, message.flags, message.count]
        assert list(tensors) == list(message.tensors)
        for name, tensor in message.tensors.items():
            assert tensors[name].dtype == tensor.dtype and torch.equal(tensors[name], tensor)
            assert tensors[name].is_contiguous()


def test_samples_go_from_gpu_to_gpu_before_the_labels(on_ranks: Callable[..., list[Any]]) -> None:
    """The labels are sent only when the receiver has the samples."""
    headers = SharedMemorySender(edge="0->1", capacity_bytes=HEADER_CAPACITY, in_flight=1, timeout_s=20.0)
    has_samples = [threading.Event() for _ in range(6)]

    def sends(group: Any) -> None:
        sender = NcclSender(edge="0->1", headers=headers, group=group, device=CPU, timeout_s=20.0)
        sender.connect()
        for step, event in enumerate(has_samples):
            whole = {"s": torch.full((3, 4), float(step)), "mask": torch.ones(3).bool(), "t": torch.full((5,), step)}
            if step != 3:
                driven(sender.begin(Message(MessageKind.TRAIN, step, {name: whole[name] for name in ("s", "mask")})))
                assert event.wait(20.0)
            driven(sender.send(Message(MessageKind.TRAIN, step, whole)))
        driven(sender.flush())

    def receives(group: Any) -> list[Any]:
        own = SharedMemoryReceiver(edge="0->1", ring=headers.ring, device=CPU, timeout_s=20.0)
        receiver = NcclReceiver(edge="0->1", headers=own, group=group, device=CPU)
        receiver.connect()
        came = []
        for event in has_samples:
            message = driven(receiver.receive())
            first, held = list(message.tensors), message.tensors
            event.set()
            driven(receiver.complete(message))
            came.append((first, list(held), held["s"].sum().item(), held["t"].sum().item()))
            receiver.release(message)
        return came

    came = on_ranks(2, lambda rank, group: receives(group) if rank else sends(group))[1]
    split, whole = ["s", "mask"], ["s", "mask", "t"]
    assert came == [(whole if step == 3 else split, whole, 12.0 * step, 5 * step) for step in range(6)]
