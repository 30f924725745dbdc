"""What each rank measures for `benchmarks.all_reduce`; the slowest rank's seconds count."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.config.sections.compression import COMPRESSIONS
from alray.core.parts import names_of
from alray.runtime.channel.all_reduce import make_all_reduce
from alray.runtime.channel.compression import make_compression
from alray.runtime.channel.gradient_layout import GradientLayout
from alray.runtime.channel.gradient_reducer import CommunicationThread, GradientReducer
from benchmarks.all_reduce_accuracy import OF_GRADIENTS, accuracies

TIMEOUT_S = 300.0
SETTINGS: dict[str, dict[str, Any]] = {"powersgd": {"rank": 2}, "top_k": {"fraction": 0.01}}
LINK_BYTES = 8 * 2**20
"""Message from which b is measured."""


@dataclass(frozen=True)
class Job:
    """sides: of the square float32 matrices that are reduced. compressed_ranks: numbers of ranks at which every
    compression, and DDP, is measured. cell_s: seconds to spend on one figure, after its first run. trained_ranks:
    replicas of the network whose accuracy is measured, in so many epochs, once for each of so many seeds."""

    ranks: Sequence[int]
    compressed_ranks: Sequence[int]
    sides: Sequence[int]
    cell_s: float
    trained_ranks: int
    epochs: int
    seeds: int


def measure(rank: int, job: Job, folder: Path) -> None:
    """All figures, in a separate process; rank 0 writes them to folder/all_reduce.json."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), max(job.ranks))
    timeout = timedelta(seconds=TIMEOUT_S)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=max(job.ranks), timeout=timeout)
    links, cells, ddp, accuracy = [], [], [], []
    for num_ranks in job.ranks:
        # Ranks that are not of it wait at the barrier, which takes nothing of the cores.
        group = cast(dist.ProcessGroup, dist.new_group(range(num_ranks)))  # a rank outside gets a number instead
        if rank < num_ranks:
            clock = Clock(group, job.cell_s)
            links.append({"ranks": num_ranks, **link(clock)})
            compressions = OF_GRADIENTS if num_ranks in job.compressed_ranks else ("none",)
            for side in job.sides:
                for compression in compressions:
                    cells += [cell(clock, name, compression, side) for name in names_of("all_reduces")]
                if num_ranks in job.compressed_ranks:
                    ddp.append(beside_ddp(clock, side))
            if num_ranks == job.trained_ranks:
                accuracy = accuracies(group, SETTINGS, epochs=job.epochs, seeds=job.seeds)
        dist.barrier()
    if rank == 0:
        found = {"job": asdict(job), "links": links, "cells": cells, "ddp": ddp, "accuracy": accuracy}
        (folder / "all_reduce.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


class Clock:
    """Times what all ranks of a group do together."""

    def __init__(self, group: dist.ProcessGroup, cell_s: float) -> None:
        self.group, self.rank, self.size = group, group.rank(), group.size()
        self._cell_s = cell_s

    def seconds(self, work: Callable[[], None], prepare: Callable[[], object] = lambda: None) -> float:
        """The median over repeats of the slowest rank's seconds; the first run, which allocates, is not counted."""
        first = self._once(work, prepare)
        repeats = max(1, min(30, int(self._cell_s / first)))
        return median(self._once(work, prepare) for _ in range(repeats))

    def _once(self, work: Callable[[], None], prepare: Callable[[], object]) -> float:
        prepare()
        dist.barrier(group=self.group)
        began = time.perf_counter()
        work()
        slowest = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, group=self.group)
        return float(slowest)


def link(clock: Clock) -> dict[str, float]:
    """a and b of one step in which every rank sends to its right neighbour and receives from its left one."""

    def shift_s(nbytes: int) -> float:
        leaving, arriving = torch.zeros(nbytes, dtype=torch.uint8), torch.zeros(nbytes, dtype=torch.uint8)

        def shift() -> None:
            receive = clock.group.recv([arriving], (clock.rank - 1) % clock.size, 0)
            send = clock.group.send([leaving], (clock.rank + 1) % clock.size, 0)
            receive.wait()
            send.wait()

        return clock.seconds(shift)

    latency_s = shift_s(1)
    return {"latency_s": latency_s, "s_per_byte": max(0.0, shift_s(LINK_BYTES) - latency_s) / LINK_BYTES}


def cell(clock: Clock, name: str, compression: str, side: int) -> dict[str, Any]:
    """One all-reduce with one compression on one size: seconds, and the bytes of the rank that sends most."""
    layout = GradientLayout((torch.Size([side, side]),))
    over = make_all_reduce(ALL_REDUCES.section(name), clock.group, timeout_s=TIMEOUT_S)
    compressed = make_compression(COMPRESSIONS.section(compression, **SETTINGS.get(compression, {})), layout)
    gradient = torch.randn(layout.num_elements, generator=torch.Generator().manual_seed(clock.rank)) / clock.size
    flat = layout.zeros()
    calls = 0

    def reduce() -> None:
        nonlocal calls
        calls += 1
        compressed.reduce(flat, 1.0 / clock.size, over)

    seconds = clock.seconds(reduce, prepare=lambda: flat.copy_(gradient))
    sent = torch.tensor([over.bytes_sent // calls])
    dist.all_reduce(sent, dist.ReduceOp.MAX, group=clock.group)
    return {
        "ranks": clock.size,
        "all_reduce": name,
        "compression": compression,
        "nbytes": 4 * side * side,
        "seconds": seconds,
        "bytes_sent": int(sent),
    }


class Sum(nn.Module):
    """One parameter, whose gradient is what comes in: a backward that takes next to nothing."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(side, side))

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        return (self.weight * s).sum()


def beside_ddp(clock: Clock, side: int) -> dict[str, Any]:
    """The step of a DDP module of one parameter, that step without its reduction, and alray's reduction after it."""
    s = torch.randn(side, side, generator=torch.Generator().manual_seed(clock.rank))
    plain, wrapped = Sum(side), DistributedDataParallel(Sum(side), process_group=clock.group)

    def step(module: nn.Module) -> None:
        module.zero_grad()
        module(s).backward()

    found = {"plain_s": clock.seconds(lambda: step(plain)), "ddp_s": clock.seconds(lambda: step(wrapped))}
    layout = GradientLayout.of([plain.weight])
    agree: dict[str, bool] = {}
    with CommunicationThread() as thread:
        for name in ("backend", "ring"):
            over = make_all_reduce(ALL_REDUCES.section(name), clock.group, timeout_s=TIMEOUT_S)
            none = make_compression(COMPRESSIONS.section("none"), layout)
            reducer = GradientReducer(layout=layout, over=over, compression=none, thread=thread)

            def reduced(reducer: GradientReducer = reducer) -> None:
                step(plain)
                reducer.start([plain.weight.grad], 1.0 / clock.size)
                reducer.wait()

            found[f"{name}_s"] = clock.seconds(reduced)
            assert plain.weight.grad is not None
            agree[name] = torch.allclose(plain.weight.grad, wrapped.module.weight.grad, atol=1e-6)
    return {"ranks": clock.size, "nbytes": 4 * side * side, "same_gradient": agree, **found}


def side_of(nbytes: int) -> int:
    """The side of the square float32 matrix of so many bytes."""
    return math.isqrt(nbytes // 4)
