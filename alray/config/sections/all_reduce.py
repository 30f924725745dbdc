"""`replicas.all_reduce`: how replicas sum their gradients."""

from __future__ import annotations

from typing import Annotated

from alray.config.sections.kind import Kind, PartSection
from alray.config.sections.own_code import Name, OfPackage, OwnCode


class AllReduceSection(PartSection):
    """How replicas sum their gradients. The keys of every all-reduce."""

    kind: str
    """Name of the algorithm."""


class OwnAllReduce(OwnCode, AllReduceSection, extra="allow"):
    """An all-reduce of the user; the keys that are not listed here go to its constructor."""

    kind: Annotated[Name, OfPackage("alray.all_reduces")]
    """The class, as `python:package.module.Class`, or the name that an installed package gives it. It derives from
    `alray.runtime.channel.all_reduce.AllReduce`."""


ALL_REDUCES = Kind("all_reduces", AllReduceSection, OwnAllReduce, default="backend")
"""All algorithms."""
AllReduce = Annotated[AllReduceSection, ALL_REDUCES]
