"""Whether empty nodes can hold what stages ask for."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from contextlib import nullcontext

import pytest

from alray.core.errors import PlanError
from alray.runtime.cluster.nodes import Bundle
from alray.runtime.cluster.room import require_room


def test_a_stage_without_a_gpu_leaves_the_node_that_has_one_to_others() -> None:
    """Its processors alone were taken first, on the first host by name."""
    stages = [{"CPU": 4.0}, {"CPU": 2.0, "GPU": 1.0}]
    nodes = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0}]
    for order in (nodes, nodes[::-1]):
        require_room(stages, order)
        with pytest.raises(PlanError) as caught:
            require_room([*stages, stages[0]], order)
        assert str(caught.value).startswith(
            "resources.per_stage: 3 stages (2 of 4 CPU, 1 of 2 CPU and 1 GPU) can never be placed: "
            "the cluster has 8 CPU, 1 GPU on 2 nodes, room for 2"
        )


@pytest.mark.parametrize(("part", "on_one"), [(0.6, 1), (0.5, 2), (0.4, 2), (0.3, 3), (0.15, 6), (0.1, 10)])
def test_a_share_of_a_gpu_lies_on_one_gpu(part: float, on_one: int) -> None:
    """What several GPUs have left adds up to none."""
    nodes = [{"CPU": 64.0, "GPU": 2.0}, {"CPU": 64.0, "GPU": 1.0}]
    stages = [{"CPU": 1.0, "GPU": 1.0}] + [{"CPU": 1.0, "GPU": part}] * 2 * on_one
    require_room(stages, nodes)
    with pytest.raises(PlanError, match=rf"room for {2 * on_one + 1}; one GPU holds {on_one} stages? of {part}"):
        require_room([*stages, stages[-1]], nodes)


def test_different_shares_may_lie_on_one_gpu() -> None:
    require_room([{"GPU": 0.6}, {"GPU": 0.4}], [{"GPU": 1.0}])


def test_a_cluster_of_many_equal_nodes_is_looked_at_in_a_moment() -> None:
    stages = [{"CPU": 2.0}] * 100 + [{"CPU": 1.0, "GPU": 0.5}] * 101
    began_s = time.monotonic()
    with pytest.raises(PlanError, match="room for 200"):
        require_room(stages, [{"CPU": 6.0, "GPU": 1.0}] * 50)
    assert time.monotonic() - began_s < 5


EIGHT_KINDS = [{"CPU": float(number)} for number in range(1, 9)] * 4


@pytest.mark.parametrize(
    ("bundles", "nodes", "fits"),
    [
        (EIGHT_KINDS, [{"CPU": 64.0}] * 50, True),
        (EIGHT_KINDS, [{"CPU": 16.0}] * 5, False),
        (EIGHT_KINDS[:4] * 16, [{"CPU": 16.0}] * 4, False),
        ([{"CPU": 1.0, "GPU": 1.0}] * 4 + EIGHT_KINDS, [{"CPU": 64.0}] * 50, False),
    ],
    ids=["far more room", "8 kinds", "64 stages", "no GPU"],
)
def test_stages_of_many_kinds_are_looked_at_in_a_moment(bundles: list[Bundle], nodes: list[Bundle], fits: bool) -> None:
    began_s = time.process_time()
    with nullcontext() if fits else pytest.raises(PlanError, match="never be placed"):
        require_room(bundles, nodes)
    assert time.process_time() - began_s < 1


def test_room_is_found_wherever_there_is_some() -> None:
    draw = random.Random(1)
    outcomes: Counter[bool] = Counter()
    for _ in range(300):
        kinds = [{name: draw.choice([0.5, 1.0, 2.0, 3.0]) for name in names} for names in ("C", "CG", "CM")]
        bundles = [draw.choice(kinds) for _ in range(draw.randint(1, 4))]
        nodes = [{name: float(draw.randint(0, 4)) for name in "CGM"} for _ in range(draw.randint(1, 3))]
        placed = [
            all(
                sum(bundle.get(name, 0.0) for bundle, chosen in zip(bundles, where, strict=True) if chosen == index)
                <= node[name]
                for index, node in enumerate(nodes)
                for name in "CGM"
            )
            for where in itertools.product(range(len(nodes)), repeat=len(bundles))
        ]
        with nullcontext() if any(placed) else pytest.raises(PlanError, match="never be placed"):
            require_room(bundles, nodes)
        outcomes[any(placed)] += 1
    assert min(outcomes[True], outcomes[False]) > 50
