"""Whether empty nodes can hold what stages ask for."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from contextlib import nullcontext

import pytest

from alray.core.errors import PlanError
from alray.runtime.cluster.room import require_room


def test_stages_of_two_kinds_need_what_they_request_together() -> None:
    stages = [{"CPU": 4.0}, {"CPU": 2.0, "GPU": 1.0}]
    nodes = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0}]
    require_room(stages, nodes)
    with pytest.raises(PlanError) as caught:
        require_room([*stages, stages[0]], nodes)
    assert str(caught.value).startswith(
        "resources.per_stage: 3 stages (2 of 4 CPU, 1 of 2 CPU and 1 GPU) can never be placed: "
        "the cluster has 8 CPU, 1 GPU on 2 nodes"
    )


@pytest.mark.parametrize(("part", "on_one"), [(0.6, 1), (0.5, 2), (0.4, 2), (0.3, 3), (0.15, 6), (0.1, 10)])
def test_a_share_of_a_gpu_lies_on_one_gpu(part: float, on_one: int) -> None:
    """What several GPUs have left adds up to none."""
    nodes = [{"CPU": 64.0, "GPU": 2.0}, {"CPU": 64.0, "GPU": 1.0}]
    stages = [{"CPU": 1.0, "GPU": part}] * 3 * on_one
    require_room(stages, nodes)
    with pytest.raises(PlanError, match=f"room for {3 * on_one};"):
        require_room([*stages, stages[-1]], nodes)


def test_different_shares_may_lie_on_one_gpu() -> None:
    require_room([{"GPU": 0.6}, {"GPU": 0.4}], [{"GPU": 1.0}])


def test_room_is_found_wherever_there_is_some() -> None:
    """Of equal stages it is found that there is none, too."""
    draw = random.Random(1)
    outcomes: Counter[bool] = Counter()
    for _ in range(300):
        kinds = [{name: draw.choice([0.5, 1.0, 2.0, 3.0]) for name in names} for names in ("C", "CG", "CM")]
        bundles = [draw.choice(kinds) for _ in range(draw.randint(1, 4))]
        nodes = [{name: float(draw.randint(0, 4)) for name in "CGM"} for _ in range(draw.randint(1, 3))]
        fits = any(
            all(
                sum(bundle.get(name, 0.0) for bundle, chosen in zip(bundles, where, strict=True) if chosen == index)
                <= node[name]
                for index, node in enumerate(nodes)
                for name in "CGM"
            )
            for where in itertools.product(range(len(nodes)), repeat=len(bundles))
        )
        if fits or all(bundle == bundles[0] for bundle in bundles):
            with nullcontext() if fits else pytest.raises(PlanError, match="never be placed"):
                require_room(bundles, nodes)
            outcomes[fits] += 1
    assert min(outcomes[True], outcomes[False]) > 20
