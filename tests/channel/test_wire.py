"""Wires between two real processes: as torch's point-to-point operations, over shared memory."""

from __future__ import annotations

import pytest
import torch

from alray.channel.message import packed_bytes
from alray.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender, SlotRing
from alray.channel.wire import Wire
from alray.errors import ChannelError

from .conftest import Other

CAPACITY = packed_bytes([64])
# Doubles what comes, and sends it back in the order it came.
_DOUBLES = """
import sys, torch
from alray.channel.message import packed_bytes
from alray.channel.shared_memory import SlotRing, SharedMemoryReceiver, SharedMemorySender
from alray.channel.wire import Wire
sender = SharedMemorySender(edge="1->0", capacity_bytes=packed_bytes([64]), in_flight=3, timeout_s=20.0)
print(sender.ring.as_text(), flush=True)
ring = SlotRing.of_text(sys.stdin.readline())
receiver = SharedMemoryReceiver(edge="0->1", ring=ring, device=torch.device("cpu"), timeout_s=20.0)
wire = Wire(sender, receiver)
for _ in range(3):
    tensor = torch.zeros(4)
    wire.receive(tensor).wait()
    wire.send(2 * tensor).wait()
sys.stdin.readline()
"""


@pytest.fixture
def doubling(other) -> Other:
    return other(_DOUBLES)


@pytest.fixture
def wire(doubling) -> Wire:
    sender = SharedMemorySender(edge="0->1", capacity_bytes=CAPACITY, in_flight=3, timeout_s=20.0)
    ring = SlotRing.of_text(doubling.stdout.readline())
    receiver = SharedMemoryReceiver(edge="1->0", ring=ring, device=torch.device("cpu"), timeout_s=20.0)
    doubling.stdin.write(f"{sender.ring.as_text()}\n")
    doubling.stdin.flush()
    return Wire(sender, receiver)


def test_what_is_waited_for_late_is_what_was_expected_first(wire) -> None:
    # torch posts receives ahead, and may wait for a later one first: the first message is the first one's all the same.
    expected = [torch.zeros(4) for _ in range(3)]
    arrivals = [wire.receive(tensor, group=None, group_src=1) for tensor in expected]
    tensors = [torch.full((4,), float(number), requires_grad=True) for number in range(3)]
    departures = [wire.send(tensor, group=None, group_dst=1) for tensor in tensors]
    with torch.no_grad():
        for tensor in tensors:
            tensor.fill_(-1.0)  # a sent tensor is its owner's again
    for index in (1, 0, 2, 0):
        assert arrivals[index].wait()
    assert all(departure.wait() for departure in departures)
    assert [tensor.tolist() for tensor in expected] == [[2.0 * number] * 4 for number in range(3)]


def test_a_leaf_that_learns_can_be_received_into(wire) -> None:
    wire.send(torch.ones(4))
    expected = torch.zeros(4, requires_grad=True)
    wire.receive(expected).wait()
    assert expected.tolist() == [2.0] * 4 and expected.is_leaf and expected.grad_fn is None


def test_another_shape_than_expected_is_refused(wire) -> None:
    wire.send(torch.ones(4))
    with pytest.raises(ChannelError, match=r"^edge 1->0: expected a tensor of shape \(2, 2\) .* got \(4,\) "):
        wire.receive(torch.zeros(2, 2, dtype=torch.float64)).wait()


def test_a_neighbour_that_is_killed_is_told(wire, doubling) -> None:
    arrival = wire.receive(torch.zeros(4))
    doubling.kill()
    with pytest.raises(ChannelError, match=r"^edge 1->0: the neighbour is gone;"):
        arrival.wait()
