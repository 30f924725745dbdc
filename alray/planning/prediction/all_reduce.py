"""The cost model of all-reduces: seconds and bytes for n ranks and m bytes.

Latency a of a message and b seconds a byte; Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (2005), section 4.5, without the time the additions take. For halving and doubling among other
numbers than powers of two, log2 is that of the largest power below, and the fold costs two messages of m bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from alray.planning.prediction.costs import Costs


@dataclass(frozen=True)
class LinkCost:
    """The cost of a message on a link.

    Attributes:
        latency_s: a, in seconds for a message.
        s_per_byte: b, in seconds for a byte.
    """

    latency_s: float
    s_per_byte: float


def averaged_over(
    costs: Costs,
    link: LinkCost,
    *,
    ranks: int,
    seconds: Callable[[int, float, LinkCost], float],
    sent_share: float,
    interval: int,
) -> Costs:
    """The costs of components whose replicas average gradients over a network, once every `interval` mini-batches.

    The longer of two times counts: as measured between processes of one machine, and as the cost model says for this
    link.

    Args:
        seconds: of the all-reduce for n ranks and m bytes over a link.
        sent_share: the bytes that are sent for each byte of a gradient.
    """
    over_link = [seconds(ranks, sent_share * each.gradient_bytes, link) for each in costs.components]
    components = [
        replace(each, reduce_s=max(each.reduce_s, found / interval)) if each.gradient_bytes else each
        for each, found in zip(costs.components, over_link, strict=True)
    ]
    return replace(costs, components=tuple(components))
