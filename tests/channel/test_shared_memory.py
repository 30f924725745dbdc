"""Edges over shared memory between two real processes; what each end does is in `two_ends.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from alray.channel.shared_memory import Ring, SharedMemoryReceiver
from alray.errors import ChannelError

SENT, RECEIVED = 0, 1


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("shared")
    script = Path(__file__).with_name("shared_ends.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, str(script), str(folder)]
    ends = [
        subprocess.Popen(
            [*command, str(rank)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in (SENT, RECEIVED)
    ]
    try:
        said = [end.communicate(timeout=90)[0] for end in ends]
    finally:
        for end in ends:
            end.kill()
            end.wait()
    assert [end.returncode for end in ends] == [0, 0], "\n".join(said)
    sides = [json.loads((folder / f"{rank}.json").read_text()) for rank in (SENT, RECEIVED)]
    return {name: [side[name] for side in sides] for name in sides[0]}


def test_text_of_another_length_after_a_longer_one_shows_no_stale_rows(found):
    *texts, cut = found["lengths"][RECEIVED]
    assert texts == [[True, [2, length, 3]] for length in (5, 2, 7, 1, 0, 3)]
    assert cut == [True, 9, 5, 4, 0]


def test_a_slot_that_autograd_holds_is_not_written_on(found):
    assert found["autograd"][RECEIVED] == [True] * 12


def test_a_sender_runs_ahead_by_what_may_wait_and_no_further(found):
    # in_flight 3: one message is worked on, three wait; then nothing goes until a slot comes back.
    assert found["bound"][RECEIVED] == {"untouched": 4, "taken": 4, "released": 5, "in_order": True}


def test_both_ways_at_once(found):
    assert found["both ways"][SENT] == [0, 8, 16]


def test_a_message_that_is_too_large_is_refused_and_the_next_one_arrives(found):
    assert "is larger" in found["too large"][SENT][0] or "the edge was laid out for" in found["too large"][SENT][0]
    assert found["too large"][RECEIVED] == [[1.0] * 8, [2.0] * 8]


def test_memory_that_may_not_be_opened_is_told():
    with pytest.raises(ChannelError) as caught:
        SharedMemoryReceiver(
            edge="0->1",
            peer=0,
            tag=1,
            ring=Ring(pid=2**22 - 1, descriptor=5, slot_bytes=4096, num_slots=2),
            device=torch.device("cpu"),
            group=None,
            timeout_s=1.0,
        )
    assert str(caught.value) == (
        f"edge 0->1: the memory of process {2**22 - 1} cannot be shared: No such file or directory; "
        "stages of one node must run in one container, as one user"
    )
