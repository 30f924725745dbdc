"""`replicas.all_reduce: backend`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.all_reduce import AllReduceSection


class Backend(AllReduceSection):
    """The all-reduce of the process group itself: that of gloo or NCCL."""

    implementation = "algorithm:BackendAllReduce"

    kind: Literal["backend"] = "backend"
    """`backend`."""
