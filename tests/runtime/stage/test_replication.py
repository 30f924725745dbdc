"""What the replicas of a stage agree on: replica 0 may be ahead of the others, and its decisions wait for them."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from alray.config.loading.load import load_spec
from alray.config.made import no_user_code
from alray.runtime.channel.edge import Waiting
from alray.runtime.stage.reduction import ReducedReplication
from alray.runtime.stage.replication import ReplicaPeers

SPEC = {
    "name": "apart",
    "data": {"source": "digits", "batch_size": 8},
    "model": {"components": [{"block": "linear", "width": 4}]},
    "run": {"epochs": 1},
}


def replica(number: int, store: dist.Store, *overrides: str, count: int = 2) -> ReducedReplication:
    plan: Any = SimpleNamespace(replicas=count, stages=1)
    group: Any = None  # without components nothing is summed
    spec = load_spec(SPEC, overrides).spec
    assignment: Any = SimpleNamespace(
        spec=spec, plan=plan, stage=0, replica=number, shares=(4,) * count, least_share=1, code=no_user_code
    )
    cpu = torch.device("cpu")
    return ReducedReplication(assignment, ReplicaPeers(group, store, 1.0, in_turns=True), [], cpu)


@pytest.mark.parametrize("count", [2, 3])
def test_a_decision_waits_for_the_replicas_that_are_behind(count: int) -> None:
    """However far: a stage that has nothing to train never meets the others, and only the room of its edges ends its
    lead."""
    store = dist.HashStore()
    ahead, *behind = (replica(number, store, f"replicas.count={count}", count=count) for number in range(count))
    for step in range(20):
        assert heard(ahead.decided(f"cut {step}", partial(int, step))) == step
    for step in range(20):
        assert [heard(each.decided(f"cut {step}", lambda: -1)) for each in behind] == [step] * len(behind)
    assert store.num_keys() == dist.HashStore().num_keys(), "the store does not grow"


def heard(decided: Waiting[int]) -> int:
    with pytest.raises(StopIteration) as read:
        next(decided)
    number: int = read.value.value
    return number
