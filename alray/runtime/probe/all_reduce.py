"""Measures how long it takes to average a component's gradients over the replicas.

The real reduction runs between threads of this process, with the all-reduce and the compression of the run. What the
network between hosts adds is in `alray.planning.prediction.all_reduce`.
"""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from statistics import median
from typing import cast

import torch
import torch.distributed as dist

from alray.config.made import Load, no_user_code
from alray.config.sections.own_code import OwnCode
from alray.config.sections.replicas import Replicas
from alray.config.user_code import named
from alray.core.accelerator import free_memory_bytes, free_unused_memory, is_accelerator
from alray.core.errors import UserCodeError
from alray.models.component import Component
from alray.runtime.channel.all_reduce import make_all_reduce
from alray.runtime.channel.compression import make_compression
from alray.runtime.channel.gradient_layout import GradientLayout
from alray.runtime.channel.gradient_reducer import CommunicationThread, GradientReducer

_MOST_RANKS = 8  # with more threads, the time would be that of switching between threads
_COPIES = 4
"""Of a component's gradients in one rank: themselves, packed, and what a compression keeps and computes."""
_REPEATS = 7
_TIMEOUT_S = 60.0


def time_reduction(component: Component, replicas: Replicas, accumulate: int, load: Load = no_user_code) -> float:
    """Seconds per mini-batch, the median of repeats; 0 with one replica or without trainable parameters.

    Args:
        accumulate: mini-batches of an update. Where gradients or weights are averaged every k mini-batches, it is a
            k-th of one average.
        load: loads an all-reduce or a compression of the user's.

    Raises:
        UserCodeError: if one of them raises an error.
    """
    parameters: list[torch.Tensor] = [each for each in component.parameters() if each.requires_grad]
    if replicas.count == 1 or not parameters:
        return 0.0
    ranks = min(replicas.count, _MOST_RANKS)
    device = parameters[0].device
    needed = _COPIES * ranks * sum(each.nbytes for each in parameters)
    if is_accelerator(device):
        free_unused_memory()  # torch keeps what the probe of the component had
    if is_accelerator(device) and needed > free_memory_bytes(device):
        # In the run each replica has its own device, or the plan would not fit. Without copies to the host and back it
        # is a little faster here.
        parameters = [torch.empty_like(each, device="cpu") for each in parameters]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store, together = dist.HashStore(), threading.Barrier(ranks)

    def rank_times(rank: int) -> list[float]:
        group = cast(dist.ProcessGroup, dist.ProcessGroupGloo(store, rank, ranks, timedelta(seconds=_TIMEOUT_S)))
        layout = GradientLayout.of(parameters)
        with CommunicationThread(layout.device) as thread:
            reducer = GradientReducer(
                layout,
                over=make_all_reduce(replicas.all_reduce, group, timeout_s=_TIMEOUT_S, load=load),
                compression=make_compression(replicas.compression, layout, load=load),
                thread=thread,
            )
            times = []
            generator = torch.Generator().manual_seed(rank)
            for _ in range(_REPEATS):
                # Not zeros: `top_k` finds the largest of them in half of the time.
                gradients = [torch.randn(each.shape, generator=generator).to(each) for each in parameters]
                together.wait()
                began = time.perf_counter()
                with _naming_own_code(replicas):
                    reducer.start(gradients, 1.0 / ranks)
                    reducer.wait()
                times.append(time.perf_counter() - began)
        return times

    with ThreadPoolExecutor(max_workers=ranks) as threads:
        begun = [threads.submit(rank_times, rank) for rank in range(ranks)]
        for each in begun:
            each.add_done_callback(lambda ended: together.abort() if ended.exception() is not None else None)
    faults = [fault for each in begun if (fault := each.exception()) is not None]
    # Where one rank raises an error of its own, the others lose it: one of user code comes first, that of a rank that
    # waited in vain last.
    if faults:
        raise min(
            faults,
            key=lambda fault: (isinstance(fault, threading.BrokenBarrierError), not isinstance(fault, UserCodeError)),
        )
    seconds: float = median(max(times) for times in zip(*(each.result() for each in begun), strict=True))
    return seconds / replicas.average_interval(accumulate)


def _naming_own_code(replicas: Replicas) -> AbstractContextManager[None]:
    """Inside, an error of a compression or an all-reduce of the user's becomes one that names it."""
    own = {
        f"replicas.{key}": f"{what} `{section.kind}`"
        for key, what, section in (
            ("compression", "compression", replicas.compression),
            ("all_reduce", "all-reduce", replicas.all_reduce),
        )
        if isinstance(section, OwnCode)
    }
    if not own:
        return nullcontext()
    return named(" or ".join(own.values()), "an average of gradients", key=next(iter(own)))
