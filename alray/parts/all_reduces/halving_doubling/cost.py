"""The time of an all-reduce: recursive halving and doubling."""

from __future__ import annotations

import math

from alray.planning.prediction.all_reduce import LinkCost


def seconds(n: int, m: float, link: LinkCost) -> float:
    """For n ranks and m bytes (`alray.planning.prediction.all_reduce`)."""
    ranks = 1 << (n.bit_length() - 1)
    fold = 2 * (link.latency_s + m * link.s_per_byte) if n > ranks else 0.0
    return fold + 2 * math.log2(ranks) * link.latency_s + 2 * m * link.s_per_byte * (ranks - 1) / ranks
