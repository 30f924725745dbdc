"""Messages are taken by what they are; what came too early waits."""

from __future__ import annotations

import torch

from alray.runtime.channel.in_process import Queue
from alray.runtime.channel.inbox import Inbox
from alray.runtime.channel.message import Message, MessageKind

from .conftest import driven

TRAIN, GRADIENT, CUT = MessageKind.TRAIN, MessageKind.GRADIENT, MessageKind.CUT


def test_order_does_not_matter() -> None:
    queue = Queue("0->1", 9)
    sender, inbox = queue, Inbox(queue)
    for virtual, micro_batch in ((1, 0), (1, 1), (3, 0)):
        message = Message(
            TRAIN, 1, {"s": torch.full((3,), virtual + micro_batch)}, virtual=virtual, micro_batch=micro_batch
        )
        driven(sender.send(message))
    driven(sender.send(Message(CUT, 1)))
    assert driven(inbox.take(TRAIN, 1, 3, 0)).virtual == 3
    assert inbox.waiting() == 3
    assert driven(inbox.first()).micro_batch == 0, "the first one stays"
    assert driven(inbox.take(TRAIN, 1, 1, 1)).micro_batch == 1
    assert driven(inbox.take(TRAIN, 1, 1, 0)).micro_batch == 0
    assert driven(inbox.first()).kind is CUT


def test_what_is_not_there_is_waited_for() -> None:
    queue = Queue("1->0", 9)
    sender, inbox = queue, Inbox(queue)
    driven(sender.send(Message(GRADIENT, 2, virtual=1)))
    taking = inbox.take(GRADIENT, 1, 1)
    assert next(taking) is None
    driven(sender.send(Message(GRADIENT, 1, virtual=1)))
    assert driven(taking).step == 1
