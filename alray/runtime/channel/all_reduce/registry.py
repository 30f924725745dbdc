"""The all-reduces by their names in a spec."""

from __future__ import annotations

from alray.runtime.channel.all_reduce.algorithm import AllReduce
from alray.runtime.channel.all_reduce.backend import Backend
from alray.runtime.channel.all_reduce.halving_doubling import HalvingDoubling
from alray.runtime.channel.all_reduce.ring import Ring
from alray.runtime.channel.all_reduce.star import Star
from alray.runtime.channel.all_reduce.tree import Tree

ALL_REDUCES: dict[str, type[AllReduce]] = {kind.name: kind for kind in (Backend, Ring, HalvingDoubling, Tree, Star)}
"""The values of `replicas.all_reduce`."""
