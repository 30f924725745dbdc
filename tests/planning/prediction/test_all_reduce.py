"""The cost model of all-reduces, and what a slow network makes of the averages of replicas."""

from __future__ import annotations

import pytest

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.planning.prediction.all_reduce import LinkCost, averaged_over
from alray.runtime.channel.all_reduce import all_reduce_class

SECONDS = {name: all_reduce_class(ALL_REDUCES.section(name)).seconds for name in ALL_REDUCES.sections}


def test_the_cost_model() -> None:
    latency, bandwidth = LinkCost(1.0, 0.0), LinkCost(0.0, 1.0)
    assert {name: seconds(8, 1000, latency) for name, seconds in SECONDS.items()} == {
        "backend": 14,
        "ring": 14,
        "halving_doubling": 6,
        "tree": 6,
        "star": 14,
    }
    assert {name: seconds(8, 1000, bandwidth) for name, seconds in SECONDS.items()} == {
        "backend": 1750,
        "ring": 1750,
        "halving_doubling": 1750,
        "tree": 6000,
        "star": 14000,
    }
    assert SECONDS["halving_doubling"](5, 1000, LinkCost(1.0, 1.0)) == 2 * 1001 + 4 + 1500
    assert SECONDS["tree"](5, 1000, bandwidth) == 6000


def test_nccl_pays_latency_for_each_piece() -> None:
    """16 MiB among two ranks: 4 MiB of each rank's half at a time."""
    seconds = SECONDS["backend"]
    assert [seconds(2, 2**24, LinkCost(1.0, 0.0, backend)) for backend in ("gloo", "nccl")] == [2, 4]
    assert [seconds(n, 1_000, LinkCost(1.0, 0.0, "nccl")) for n in (4, 16)] == [6, 8], "few bytes go over a tree"
    one, two = (seconds(4, nbytes, LinkCost(0.0, 1.0, "nccl")) for nbytes in (2**20, 2**21))
    assert two < 1.5 * one, "what a message waits does not grow with its bytes"


def test_a_slow_network_decides_how_long_an_average_takes(make_costs) -> None:
    """1 ms a message and 1 MB/s; three replicas, 16-bit gradients, one average every two mini-batches."""
    slow = averaged_over(
        make_costs(), LinkCost(1e-3, 1e-6), ranks=3, seconds=SECONDS["star"], sent_share=0.5, interval=2
    )
    assert [each.reduce_s for each in slow.components] == pytest.approx(
        [2 * (1e-3 + n * 2e-6) for n in (100, 200, 300, 1000)]
    )
    fast = averaged_over(slow, LinkCost(1e-6, 1e-9), ranks=3, seconds=SECONDS["ring"], sent_share=1.0, interval=1)
    assert fast == slow, "the processes themselves take longer than this network"
