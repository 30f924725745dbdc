"""The time of an all-reduce: a binary tree."""

from __future__ import annotations

import math

from alray.planning.prediction.all_reduce import LinkCost


def seconds(n: int, m: float, link: LinkCost) -> float:
    """For n ranks and m bytes (`alray.planning.prediction.all_reduce`)."""
    return 2 * math.ceil(math.log2(n)) * (link.latency_s + m * link.s_per_byte)
