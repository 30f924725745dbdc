"""What it takes to average a component's gradients over the replicas: the real reduction, between threads here.

It runs over the same groups, by the same all-reduce and with the same compression as in the run. On a cluster, where
replicas lie on several hosts, their network is not in it.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from statistics import median
from typing import cast

import torch
import torch.distributed as dist

from alray.channel.all_reduce.registry import ALL_REDUCES
from alray.channel.compression.layout import Layout
from alray.channel.compression.registry import make_compression
from alray.channel.gradient_reducer import GradientReducer, communication_thread
from alray.nn.component import Component
from alray.spec.replicas import Replicas

_MOST_RANKS = 8  # more threads than this tell of this process, not of the reduction
_REPEATS = 7
_TIMEOUT_S = 60.0


def time_reduction(component: Component, replicas: Replicas) -> float:
    """Seconds of one mini-batch, the median of repeats; 0 where there is one replica, or nothing to train.

    Where weights are averaged every k mini-batches, the k-th part of what that takes.
    """
    parameters = [parameter for parameter in component.parameters() if parameter.requires_grad]
    if replicas.count == 1 or not parameters:
        return 0.0
    ranks = min(replicas.count, _MOST_RANKS)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store, together = dist.HashStore(), threading.Barrier(ranks)

    def rank_times(rank: int) -> list[float]:
        group = dist.ProcessGroupGloo(store, rank, ranks, timedelta(seconds=_TIMEOUT_S))
        layout = Layout.of(parameters)
        with communication_thread() as thread:
            reducer = GradientReducer(
                layout,
                over=ALL_REDUCES[replicas.all_reduce](cast(dist.ProcessGroup, group), timeout_s=_TIMEOUT_S),
                compression=make_compression(layout=layout, **replicas.compression.model_dump()),
                thread=thread,
            )
            times = []
            for _ in range(_REPEATS):
                gradients = [torch.zeros_like(parameter) for parameter in parameters]
                together.wait(_TIMEOUT_S)
                began = time.perf_counter()
                reducer.start(gradients, 1.0 / ranks)
                reducer.wait()
                times.append(time.perf_counter() - began)
        return times

    with ThreadPoolExecutor(max_workers=ranks) as threads:
        found = [each.result() for each in [threads.submit(rank_times, rank) for rank in range(ranks)]]
    interval = 1 if replicas.synchronise == "every_step" else replicas.synchronise.num_steps
    seconds: float = median(max(times) for times in zip(*found, strict=True))
    return seconds / interval
