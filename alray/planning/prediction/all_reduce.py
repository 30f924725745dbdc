"""The cost model of all-reduces: seconds and bytes for n ranks and m bytes.

Latency a of a message and b seconds a byte; Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (2005), section 4.5, without the time the additions take. For halving and doubling among other
numbers than powers of two, log2 is that of the largest power below, and the fold costs two messages of m bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LinkCost:
    """The cost of a message on a link.

    Attributes:
        latency_s: a, in seconds for a message.
        s_per_byte: b, in seconds for a byte.
        backend: whose all-reduce is meant where that of the backend is.
    """

    latency_s: float
    s_per_byte: float
    backend: Literal["gloo", "nccl"] = "gloo"


_PIECE_BYTES = 4 * 2**20
"""That a rank of NCCL passes on at a time: it has two channels over a network, and passes on half of the 4 MiB of each
(ALLREDUCE_CHUNKSTEPS in nccl/src/include/collectives.h, NCCL_BUFFSIZE)."""
_WAITING_BYTES = 350_000
"""Each message of NCCL's all-reduce takes its card for so many bytes longer, whatever its size. Set on a table of
measured all-reduces of 4 and of 16 ranks on links of 1 to 10 Gbit/s (SETS_WAIT in benchmarks/published.py); no cause is
known. On a link of 25 GB/s it is 14 us, and so NCCL itself counts (nccl/src/graph/tuning.cc, hwLat)."""
_TREE_BYTES = 10 * 2**10
"""NCCL takes a tree for fewer bytes, if there are more than four ranks. Its estimates (nccl/src/graph/tuning.cc, 2.10):
4.4 us and 5.0 us for each of 2 log2(n) messages of a tree, 3.6 us and 2.7 us for each of 2(n-1) of a ring. A tree has
the smaller bandwidth, so from about 10 KiB on, with 16 ranks, a ring is faster."""


def backend_seconds(n: int, m: float, link: LinkCost) -> float:
    """The seconds of the backend's all-reduce of m bytes among n ranks.

    It is a ring. NCCL passes on so many bytes at a time, and all ranks wait for their messages before the next bytes:
    a longer tensor is several pieces, and each of them pays the latencies. gloo has the next bytes on their way
    meanwhile.
    """
    pieces, latency_s = 1, link.latency_s
    if link.backend == "nccl":
        latency_s += _WAITING_BYTES * link.s_per_byte
        if n > 4 and m < _TREE_BYTES:
            return 2 * math.ceil(math.log2(n)) * (latency_s + m * link.s_per_byte)
        pieces = max(1, math.ceil(m / (n * _PIECE_BYTES)))
    return 2 * (n - 1) * (pieces * latency_s + m * link.s_per_byte / n)
