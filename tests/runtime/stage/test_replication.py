"""What the replicas of a stage agree on: replica 0 may be ahead of the others, and its decisions wait for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from alray.config.loading.load import load_spec
from alray.config.made import no_user_code
from alray.runtime.stage.reduction import ReducedReplication

SPEC = {
    "name": "apart",
    "data": {"source": "digits", "batch_size": 8},
    "model": {"components": [{"block": "linear", "width": 4}]},
    "run": {"epochs": 1},
}


def replica(number: int, store: dist.Store, *overrides: str) -> ReducedReplication:
    plan: Any = SimpleNamespace(replicas=2, stages=1)
    group: Any = None  # without components nothing is summed
    spec = load_spec(SPEC, overrides).spec
    assignment: Any = SimpleNamespace(
        spec=spec, plan=plan, stage=0, replica=number, shares=(4, 4), least_share=1, code=no_user_code
    )
    cpu = torch.device("cpu")
    return ReducedReplication(assignment, [], group=group, store=store, in_turns=True, timeout_s=1.0, device=cpu)


@pytest.mark.parametrize(
    ("override", "apart"),
    [
        ("replicas.count=2", 1),
        ("optimizer.accumulate=3", 3),
        ("replicas.synchronise={average_every: 5 steps}", 5),
    ],
)
def test_a_decision_waits_for_the_replica_that_is_behind(override: str, apart: int) -> None:
    """Replicas meet once an update or once a mean. From the cut after one meeting to the next, replica 0 decides two
    cuts a mini-batch."""
    store = dist.HashStore()
    ahead, behind = (replica(number, store, override) for number in range(2))
    for step in range(10):
        ahead.decided(f"cut {step}", lambda: 7)
    for step in range(10, 10 + apart + 1):
        ahead.decided(f"cut {step}", lambda: 8)
        ahead.decided(f"second cut {step}", lambda: 9)
    with pytest.raises(StopIteration) as read:
        next(behind.decided("cut 10", lambda: 0))
    assert read.value.value == 8
    assert not store.check(["decided cut 0"]), "the store does not grow"
