"""`replicas.all_reduce: star`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.all_reduce import AllReduceSection


class Star(AllReduceSection):
    """A star: replica 0 adds up the gradients of the others, as a parameter server does."""

    implementation = "algorithm:StarAllReduce"

    kind: Literal["star"]
    """`star`."""
