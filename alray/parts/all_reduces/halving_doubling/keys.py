"""`replicas.all_reduce: halving_doubling`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.all_reduce import AllReduceSection


class HalvingDoubling(AllReduceSection):
    """Recursive halving and doubling: pairs of replicas exchange half of what remains."""

    implementation = "algorithm:HalvingDoublingAllReduce"

    kind: Literal["halving_doubling"]
    """`halving_doubling`."""
