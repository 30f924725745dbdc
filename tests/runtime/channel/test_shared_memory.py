"""Edges over shared memory between two real processes; what each end does is in `two_ends.py`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.core.errors import ChannelError, MessageError
from alray.runtime.channel.message import HEADER_BYTES, Message, MessageKind, packed_bytes
from alray.runtime.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender, SlotRing

pytestmark = pytest.mark.forked

SENT, RECEIVED = 0, 1


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, run_script: Callable[[str, Path], None]) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("shared")
    run_script("shared_ends.py", folder)
    sides = [json.loads((folder / f"{rank}.json").read_text()) for rank in (SENT, RECEIVED)]
    return {name: [side[name] for side in sides] for name in sides[0]}


@pytest.mark.full
def test_text_of_another_length_after_a_longer_one_shows_no_stale_rows(found):
    *texts, cut = found["lengths"][RECEIVED]
    assert texts == [[True, [2, length, 3]] for length in (5, 2, 7, 1, 0, 3)]
    assert cut == [True, 9, 5, 4, 0]


@pytest.mark.full
def test_a_slot_that_autograd_holds_is_not_written_on(found):
    assert found["autograd"][RECEIVED] == [True] * 12


def test_a_sender_runs_ahead_by_what_may_wait_and_no_further(found):
    # in_flight 3: one message is worked on, three wait; then nothing goes until a slot comes back.
    waiting = found["bound"][RECEIVED].pop("waiting")
    assert found["bound"][RECEIVED] == {"untouched": 4, "taken": 4, "released": 5, "in_order": True}
    assert waiting[0] <= 4 and waiting[1:] == [4, 3, 4]


def test_both_ways_at_once(found):
    assert found["both ways"][SENT] == [0, 8, 16]


def test_a_message_that_is_too_large_is_refused_and_the_next_one_arrives(found):
    assert "is larger" in found["too large"][SENT][0] or "the edge was laid out for" in found["too large"][SENT][0]
    assert found["too large"][RECEIVED] == [[1.0] * 8, [2.0] * 8]


def test_memory_that_may_not_be_opened_is_told():
    with pytest.raises(ChannelError) as caught:
        SharedMemoryReceiver(
            edge="0->1",
            ring=SlotRing(pid=2**22 - 1, memory=5, filled=6, free=7, slot_bytes=4096, num_slots=2),
            device=torch.device("cpu"),
            timeout_s=1.0,
        )
    message = str(caught.value)
    assert message.startswith("edge 0->1: ") and f"process {2**22 - 1} " in message


_RECEIVES_ONE = """
import sys, time, torch
from alray.runtime.channel.shared_memory import SlotRing, SharedMemoryReceiver
end = SharedMemoryReceiver(edge="0->1", ring=SlotRing.of_text(sys.argv[1]), device=torch.device("cpu"), timeout_s=20.0)
for _ in end.receive(): pass
print("received", flush=True)
time.sleep(60)
"""
_SENDS_ONE = """
import sys, time
from alray.runtime.channel.message import HEADER_BYTES, MessageKind, Message, packed_bytes
from alray.runtime.channel.shared_memory import SharedMemorySender
end = SharedMemorySender(edge="0->1", capacity_bytes=HEADER_BYTES, in_flight=1, timeout_s=20.0)
for _ in end.send(Message(MessageKind.TRAIN, 1)): pass
print(end.ring.as_text(), flush=True)
time.sleep(60)
"""

_RECEIVES_IN_PARTS = """
import sys, torch
from alray.runtime.channel.shared_memory import SlotRing, SharedMemoryReceiver
from alray.core.errors import ChannelError
end = SharedMemoryReceiver(edge="0->1", ring=SlotRing.of_text(sys.argv[1]), device=torch.device("cpu"), timeout_s=20.0)
def done(waiting):
    try:
        next(waiting)
    except StopIteration as result:
        return result.value
try:
    while True:
        message = done(end.receive())
        print(message.step, message.more, *message.tensors, flush=True)
        done(end.complete(message))
        print(message.step, message.more, *(f"{k}={v.sum().item():g}" for k, v in message.tensors.items()), flush=True)
        end.release(message)
except ChannelError as error:
    print(error, flush=True)
"""
_BEGINS_ONE = """
import sys, time, torch
from alray.runtime.channel.message import MessageKind, Message, packed_bytes
from alray.runtime.channel.shared_memory import SharedMemorySender
end = SharedMemorySender(edge="0->1", capacity_bytes=packed_bytes([64]), in_flight=1, timeout_s=20.0)
for _ in end.begin(Message(MessageKind.TRAIN, 1, {"s": torch.ones(4)})): pass
print(end.ring.as_text(), flush=True)
time.sleep(60)
"""


def _sender(timeout_s: float) -> SharedMemorySender:
    return SharedMemorySender(edge="0->1", capacity_bytes=HEADER_BYTES, in_flight=1, timeout_s=timeout_s)


def _send(sender: SharedMemorySender, step: int) -> None:
    for _ in sender.send(Message(MessageKind.TRAIN, step)):
        raise AssertionError("an edge between processes blocks")


@pytest.mark.full
def test_a_receiver_that_is_killed_is_told_to_the_sender_that_waits_for_it(other) -> None:
    sender = _sender(20.0)
    _send(sender, 1)
    receiver = other(_RECEIVES_ONE, sender.ring.as_text())
    assert receiver.stdout.readline() == "received\n"
    _send(sender, 2)
    threading.Timer(0.2, receiver.kill).start()
    began = time.monotonic()
    with pytest.raises(ChannelError, match=r"^edge 0->1: the neighbour is gone;"):
        _send(sender, 3)  # both slots are the receiver's
    assert time.monotonic() - began < 10.0
    with pytest.raises(ChannelError, match="gone"):
        _send(sender, 3)


def test_a_sender_that_is_killed_is_told_to_the_receiver_after_what_it_sent(other) -> None:
    sender = other(_SENDS_ONE)
    ring = SlotRing.of_text(sender.stdout.readline())
    receiver = SharedMemoryReceiver(edge="0->1", ring=ring, device=torch.device("cpu"), timeout_s=20.0)
    threading.Timer(0.2, sender.kill).start()
    with pytest.raises(StopIteration) as received:
        next(receiver.receive())
    message = received.value.value
    assert (message.kind, message.step) == (MessageKind.TRAIN, 1)
    with pytest.raises(ChannelError, match=r"^edge 0->1: the neighbour is gone;"):
        next(receiver.receive())
    with pytest.raises(ChannelError, match=r"^edge 0->1: the neighbour is gone;"):
        receiver.release(message)


def test_a_silent_neighbour_is_told_apart(other) -> None:
    sender = _sender(0.3)
    receiver = other(_RECEIVES_ONE, sender.ring.as_text())
    for step in (1, 2):
        _send(sender, step)
    assert receiver.stdout.readline() == "received\n"
    with pytest.raises(ChannelError, match=r"^edge 0->1: the neighbour is silent;"):
        for _ in range(2):  # the first may find the word that the receiver is there
            _send(sender, 3)


def test_a_receiver_hears_nothing_from_a_silent_sender(other) -> None:
    sender = other(_SENDS_ONE)
    ring = SlotRing.of_text(sender.stdout.readline())
    receiver = SharedMemoryReceiver(edge="0->1", ring=ring, device=torch.device("cpu"), timeout_s=0.3)
    with pytest.raises(StopIteration):
        next(receiver.receive())
    with pytest.raises(ChannelError, match=r"^edge 0->1: the neighbour is silent;"):
        next(receiver.receive())


def test_a_message_in_two_parts_is_seen_before_it_is_complete(other) -> None:
    rows, labels = torch.ones(4, 8), torch.arange(6.0)
    capacity = packed_bytes([rows.nbytes, labels.nbytes])
    sender = SharedMemorySender(edge="0->1", capacity_bytes=capacity, in_flight=1, timeout_s=20.0)
    receiver = other(_RECEIVES_IN_PARTS, sender.ring.as_text())
    for step in range(1, 9):
        # Fewer rows now and then, as at the end of an epoch; every third message whole.
        s, t = rows[: 4 - step % 2] * step, labels * step
        whole = {"s": s, "t": t}
        if step % 3:
            assert not list(sender.begin(Message(MessageKind.TRAIN, step, {"s": s})))
            assert receiver.stdout.readline() == f"{step} True s\n"
        assert not list(sender.send(Message(MessageKind.TRAIN, step, whole)))
        if not step % 3:
            assert receiver.stdout.readline() == f"{step} False s t\n"
        assert receiver.stdout.readline() == f"{step} False s={s.sum():g} t={t.sum():g}\n"


def _done(waiting: Any) -> Any:
    """Run an operation to its end: between processes it never yields."""
    with pytest.raises(StopIteration) as ended:
        next(waiting)
    return ended.value.value


def test_a_message_in_two_parts_waits_once_and_asking_takes_nothing() -> None:
    sender = SharedMemorySender(edge="0->1", capacity_bytes=packed_bytes([64, 64]), in_flight=2, timeout_s=20.0)
    receiver = SharedMemoryReceiver(edge="0->1", ring=sender.ring, device=torch.device("cpu"), timeout_s=20.0)
    whole = {"s": torch.ones(16), "t": torch.zeros(16)}
    assert receiver.waiting() == 0
    assert not list(sender.begin(Message(MessageKind.TRAIN, 1, {"s": whole["s"]})))
    assert receiver.waiting() == 1
    assert not list(sender.send(Message(MessageKind.TRAIN, 1, whole)))
    assert not list(sender.send(Message(MessageKind.TRAIN, 2, whole)))
    assert receiver.waiting() == 2
    for step in (1, 2):
        message = _done(receiver.receive())
        _done(receiver.complete(message))
        assert (message.step, sorted(message.tensors)) == (step, ["s", "t"])
        receiver.release(message)
        assert receiver.waiting() == 2 - step
    sender.close()
    assert receiver.waiting() == 0
    receiver.close()


def test_a_second_part_that_does_not_fit_is_refused(other) -> None:
    sender = SharedMemorySender(edge="0->1", capacity_bytes=packed_bytes([64, 64]), in_flight=1, timeout_s=20.0)
    s = torch.ones(16)
    assert not list(sender.begin(Message(MessageKind.TRAIN, 1, {"s": s})))
    with pytest.raises(MessageError, match="the edge was laid out for"):
        list(sender.send(Message(MessageKind.TRAIN, 1, {"s": s, "t": torch.ones(17)})))


def test_a_sender_that_is_killed_between_two_parts_is_told(other) -> None:
    sender = other(_BEGINS_ONE)
    receiver = other(_RECEIVES_IN_PARTS, sender.stdout.readline())
    assert receiver.stdout.readline() == "1 True s\n"
    sender.kill()
    said = receiver.stdout.readline()
    assert said == "edge 0->1: the neighbour is gone; look for the error of its stage\n"
