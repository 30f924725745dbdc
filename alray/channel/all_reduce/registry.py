"""The all-reduces by the names a spec gives them."""

from __future__ import annotations

import torch
import torch.distributed as dist

from alray.channel.all_reduce.algorithm import AllReduce
from alray.channel.all_reduce.backend import Backend
from alray.channel.all_reduce.halving_doubling import HalvingDoubling
from alray.channel.all_reduce.ring import Ring
from alray.channel.all_reduce.star import Star
from alray.channel.all_reduce.tree import Tree

ALL_REDUCES: dict[str, type[AllReduce]] = {kind.name: kind for kind in (Backend, Ring, HalvingDoubling, Tree, Star)}
"""Values of `replicas.all_reduce`."""


def all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup, algorithm: str, *, timeout_s: float) -> int:
    """Replace a flat tensor by its sum over the ranks of the group, in place; returns the bytes this rank sent.

    `algorithm` is a key of `ALL_REDUCES`. See `AllReduce.sum`; whoever reduces often keeps an `AllReduce` instead.
    """
    reduction = ALL_REDUCES[algorithm](group, timeout_s=timeout_s)
    reduction.sum(tensor)
    return reduction.bytes_sent
