"""The cost model of all-reduces: seconds and bytes for n ranks and m bytes.

Latency a of a message and b seconds a byte; Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (2005), section 4.5, without the time the additions take. For halving and doubling among other
numbers than powers of two, log2 is that of the largest power below, and the fold costs two messages of m bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """latency_s: a, seconds; s_per_byte: b."""

    latency_s: float
    s_per_byte: float


def ring(n: int, m: int, link: Link) -> float:
    return 2 * (n - 1) * link.latency_s + 2 * m * link.s_per_byte * (n - 1) / n


def halving_doubling(n: int, m: int, link: Link) -> float:
    places = 1 << (n.bit_length() - 1)
    fold = 2 * (link.latency_s + m * link.s_per_byte) if n > places else 0.0
    return fold + 2 * math.log2(places) * link.latency_s + 2 * m * link.s_per_byte * (places - 1) / places


def tree(n: int, m: int, link: Link) -> float:
    return 2 * math.ceil(math.log2(n)) * (link.latency_s + m * link.s_per_byte)


def star(n: int, m: int, link: Link) -> float:
    return 2 * (n - 1) * (link.latency_s + m * link.s_per_byte)


COSTS: dict[str, Callable[[int, int, Link], float]] = {
    "backend": ring,  # gloo's algorithm
    "ring": ring,
    "halving_doubling": halving_doubling,
    "tree": tree,
    "star": star,
}
