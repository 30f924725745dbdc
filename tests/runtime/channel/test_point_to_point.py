"""Edges between two real processes over loopback; what each end does is in `two_ends.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.runtime.channel.message import HEADER_BYTES
from alray.runtime.channel.point_to_point import lost_neighbour

pytestmark = pytest.mark.forked

Found = dict[str, list[Any]]
SENT, RECEIVED = 0, 1


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, run_script: Callable[[str, Path], None]) -> Found:
    """What both ends of every scenario came to; one pair of processes for all of them."""
    folder = tmp_path_factory.mktemp("ends")
    run_script("two_ends.py", folder)
    sides = [json.loads((folder / f"{rank}.json").read_text()) for rank in (SENT, RECEIVED)]
    return {name: [side[name] for side in sides] for name in sides[0]}


@pytest.mark.full
def test_text_of_another_length_after_a_longer_one_shows_no_stale_rows(found):
    *texts, cut = found["lengths"][RECEIVED]
    assert texts == [[True, [2, length, 3]] for length in (5, 2, 7, 1, 0, 3)]
    assert cut == [True, 9, 5, 4, 0]


@pytest.mark.full
def test_bytes_sent_are_counted_with_headers_and_alignment(found):
    def up(nbytes: int) -> int:
        return -(-nbytes // 64) * 64

    texts = sum(HEADER_BYTES + up(2 * length * 3 * 4) + up(2 * length) + up(2 * 8) for length in (5, 2, 7, 1, 0, 3))
    assert found["lengths"][SENT] == texts + HEADER_BYTES


def test_a_buffer_that_autograd_holds_is_not_written_on(found):
    """The sender runs ahead until the buffer is full, and values and gradients stay right to the bit."""
    assert found["autograd"][RECEIVED] == [True] * 12


def test_how_far_a_sender_runs_ahead(found):
    """in_flight is 3: four messages in the receiver's ring and one on its way; each one released lets one more go."""
    waiting = found["bound"][RECEIVED].pop("waiting")
    assert found["bound"][RECEIVED] == {"untouched": 5, "taken": 5, "released": 6, "in_order": True}
    assert waiting[0] <= 4 and waiting[1:] == [4, 3, 4]


def test_messages_up_and_down_do_not_get_in_each_others_way(found):
    assert found["both ways"][SENT] == [0, 8, 16]


def test_what_cannot_be_sent_is_refused_where_it_would_be_sent(found):
    refused = zip(found["too large"][SENT], ("7168 bytes", "7 dimensions", "torch.complex64"), strict=True)
    assert all(told.startswith("edge 0->1: ") and noun in told for told, noun in refused)


def test_messages_before_and_after_one_that_was_refused_arrive_whole(found):
    assert found["too large"][RECEIVED] == [[1.0] * 8, [2.0] * 8]


def test_samples_arrive_before_the_labels_of_their_message_are_sent(found):
    *messages, cut = found["two parts"][RECEIVED]
    assert messages == [[["s"] if step % 3 else ["s", "t"], True] for step in range(9)]
    assert cut
    whole = HEADER_BYTES + 8 * 16 * 4 + 8 * 8
    assert found["two parts"][SENT] == 9 * whole + 6 * HEADER_BYTES + HEADER_BYTES


def test_receiving_more_than_the_ring_holds_is_said(found):
    assert found["no buffer"][RECEIVED].startswith("edge 0->1: every receive buffer is still in use; ")


def test_what_is_no_message_of_alray_is_said(found):
    assert found["alien"][RECEIVED].startswith("edge 0->1: what arrived is not an alray message; ")


def test_nobody_passes_a_barrier_before_all_have_come(found):
    assert found["barrier"] == [[True] * 4, [True] * 4]


def test_a_neighbour_that_sends_nothing_is_noticed_in_time(found):
    silent = found["silent"][RECEIVED]
    assert silent["told"].startswith("edge 0->1: the neighbour is silent (")
    assert 0.25 < silent["waited_s"] < 5.0


def test_a_neighbour_that_dies_is_named_by_its_edge(found):
    told = found["dies"][SENT]
    assert told["receive"].startswith("edge 1->0: the neighbour is gone (")
    assert told["send"].startswith("edge 0->1: the neighbour is gone (")


GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] "
NCCL = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=RECV) ran for 300021 "


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (GLOO + "Timed out waiting 20000ms for recv operation to complete", "silent"),
        (GLOO + "Connection closed by peer [127.0.0.1]:41233. This may indicate a remote failure.", "gone"),
        (NCCL + "milliseconds before timing out.", "silent"),
        ("NCCL communicator was aborted on rank 1.", "gone"),
        ("NCCL error in: ProcessGroupNCCL.cpp:2022, remote process exited or there was a network error", "gone"),
    ],
)
def test_a_neighbour_that_does_not_answer_and_one_that_has_ended(said, state):
    (problem,) = lost_neighbour("0->1", RuntimeError(said)).problems
    assert problem.message.startswith(f"edge 0->1: the neighbour is {state} (")


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("device-side assert triggered", 710),
        torch.OutOfMemoryError("the device is full"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("NCCL error: unhandled cuda error\nLast error: Cuda failure 2 'out of memory'"),
        RuntimeError("NCCL error: unhandled cuda error\nLast error: Cuda failure 700 'an illegal memory access'"),
    ],
)
def test_an_error_of_the_own_gpu_is_no_lost_neighbour(error: RuntimeError) -> None:
    with pytest.raises(RuntimeError) as caught:
        lost_neighbour("0->1", error)
    assert caught.value is error
