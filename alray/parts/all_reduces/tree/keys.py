"""`replicas.all_reduce: tree`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.all_reduce import AllReduceSection


class Tree(AllReduceSection):
    """A binomial tree: sums go up to replica 0, and the result comes down."""

    implementation = "algorithm:TreeAllReduce"

    kind: Literal["tree"]
    """`tree`."""
