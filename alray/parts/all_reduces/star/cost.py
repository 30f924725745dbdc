"""The time of an all-reduce: a star: one rank adds up all tensors."""

from __future__ import annotations

from alray.planning.prediction.all_reduce import LinkCost


def seconds(n: int, m: float, link: LinkCost) -> float:
    """For n ranks and m bytes (`alray.planning.prediction.all_reduce`)."""
    return 2 * (n - 1) * (link.latency_s + m * link.s_per_byte)
