"""The two parts of a message from GPU to GPU. Here gloo takes the place of NCCL, and a CPU that of both GPUs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import torch

from alray.channel.in_process import Queue
from alray.channel.message import CutFlag, Message, MessageKind
from alray.channel.nccl import NcclReceiver, NcclSender

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


def driven(waiting: Generator[None, None, Any]) -> Any:
    """Run an operation of an edge within one process, which yields until it can go on."""
    while True:
        try:
            next(waiting)
        except StopIteration as done:
            return done.value


def test_messages_arrive_whole_and_in_order(on_ranks: Callable[..., list[Any]]) -> None:
    queue = Queue("0->1", in_flight=2)

    def work(rank: int, group: Any) -> Any:
        if rank == 0:
            sender = NcclSender(edge="0->1", headers=queue.sender(), group=group, device=CPU, timeout_s=20.0)
            sender.connect()
            for message in MESSAGES:
                driven(sender.send(message))
            driven(sender.flush())
            return sender.bytes_sent
        receiver = NcclReceiver(edge="0->1", headers=queue.receiver(), group=group, device=CPU)
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
