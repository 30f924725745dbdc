"""Edges and barriers among stages that take turns in one process."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import torch

from alray.runtime.channel.in_process import Queue, TurnBarrier
from alray.runtime.channel.message import Message, MessageKind, packed_bytes

Turn = Generator[None, None, Any]


def turn(waiting: Turn) -> tuple[bool, Any]:
    """Go on until it has to wait or ends: whether it ended, and with what."""
    try:
        next(waiting)
    except StopIteration as end:
        return True, end.value
    return False, None


def message(step: int) -> Message:
    return Message(MessageKind.TRAIN, step, {"s": torch.full((2,), float(step))})


def test_an_edge_holds_as_many_as_may_be_in_flight_and_no_more():
    queue = Queue("0->1", 3)
    sender = receiver = queue
    assert queue.edge == "0->1"
    assert [turn(sender.send(message(step)))[0] for step in range(3)] == [True] * 3
    fourth = sender.send(message(3))
    assert [turn(fourth)[0] for _ in range(5)] == [False] * 5
    assert queue.waiting() == 3
    assert turn(receiver.receive())[1].step == 0
    assert turn(fourth)[0] and queue.waiting() == 3


def test_messages_come_in_the_order_sent():
    queue = Queue("0->1", 2)
    sender = receiver = queue
    seen = []

    def sends() -> Turn:
        for step in range(9):
            yield from sender.send(message(step))

    def receives() -> Turn:
        for _ in range(9):
            received = yield from receiver.receive()
            seen.append((received.step, received.tensors["s"].tolist()))

    sending, receiving = sends(), receives()
    for _ in range(9):  # two go at once, so nine turns are ample
        turn(sending)
        turn(receiving)
    assert seen == [(step, [float(step)] * 2) for step in range(9)]


def test_a_receiver_waits_for_what_is_not_there_yet():
    queue = Queue("0->1", 1)
    receiving = queue.receive()
    assert turn(receiving) == (False, None)
    sent = message(4)
    assert turn(queue.send(sent))[0]
    assert turn(receiving) == (True, sent)


def test_flushing_waits_until_all_was_taken():
    queue = Queue("0->1", 2)
    sender = receiver = queue
    for step in range(2):
        turn(sender.send(message(step)))
    flushing = sender.flush()
    for _ in range(2):
        assert not turn(flushing)[0]
        turn(receiver.receive())
    assert turn(flushing)[0]


def test_bytes_are_counted_as_they_would_be_between_processes():
    queue = Queue("0->1", 4)
    sender = queue
    turn(sender.send(message(0)))
    turn(sender.send(Message(MessageKind.CUT, 0)))
    assert sender.bytes_sent == packed_bytes([8]) + packed_bytes([])


def test_a_released_message_lets_go_of_its_tensors():
    received = message(0)
    Queue("0->1", 1).release(received)
    assert received.tensors == {}


def test_nobody_passes_a_barrier_before_all_have_come_round_after_round():
    barrier = TurnBarrier(3)
    passed = [0, 0, 0]

    def party(place: int, slow: int) -> Turn:
        for number in range(4):
            for _ in range(slow):
                yield
            yield from barrier.wait()
            assert min(passed) >= number, "somebody has not come through the round before"
            passed[place] += 1

    turns = {place: party(place, place * 2) for place in range(3)}
    while turns:
        for place in list(turns):
            if turn(turns[place])[0]:
                del turns[place]
        assert max(passed) - min(passed) <= 1
    assert passed == [4, 4, 4]


def test_a_barrier_of_one_is_no_barrier():
    assert turn(TurnBarrier(1).wait()) == (True, None)
