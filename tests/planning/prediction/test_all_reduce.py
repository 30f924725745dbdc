"""The cost model of all-reduces."""

from __future__ import annotations

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.planning.prediction.all_reduce import LinkCost
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
