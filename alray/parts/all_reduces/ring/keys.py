"""`replicas.all_reduce: ring`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.all_reduce import AllReduceSection


class Ring(AllReduceSection):
    """A ring: each replica sends to the next one only."""

    implementation = "algorithm:RingAllReduce"

    kind: Literal["ring"]
    """`ring`."""
