"""The time of an all-reduce: a ring: each rank sends to the next one."""

from __future__ import annotations

from alray.planning.prediction.all_reduce import LinkCost


def seconds(n: int, m: float, link: LinkCost) -> float:
    """For n ranks and m bytes (`alray.planning.prediction.all_reduce`)."""
    return 2 * (n - 1) * link.latency_s + 2 * m * link.s_per_byte * (n - 1) / n
