"""The cost of a prediction by each route: its parameters, and its time measured here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from alray.core.accelerator import wait_for_all
from alray.data.batches import Batch, EvaluationBatches
from alray.data.dataset import Dataset
from alray.inference.network import TrainedNetwork
from alray.models.component import trainable
from alray.models.route import Route

_LEAST_REPEATS, _MOST_REPEATS = 5, 100
_ENOUGH_S = 0.3  # spent on one route, at least _LEAST_REPEATS times


@dataclass(frozen=True)
class RouteCost:
    """The cost of inference by one route.

    Attributes:
        parameters: number of trainable parameters the route uses.
        time_per_sample_s: time of a mini-batch of `batch_size` samples, the median over repeats after a warm-up,
            divided by that size.
    """

    depth: int
    parameters: int
    time_per_sample_s: float
    batch_size: int


def measure_routes(network: TrainedNetwork, depths: Sequence[int]) -> list[RouteCost]:
    """The cost of each of these routes, on a mini-batch of the run's data and on the run's device and threads."""
    batch = whole_batch(network.workload.data)
    tensors = batch.inputs(network.device, network.workload.network.dtype)
    size = len(batch.labels)

    def cost(depth: int) -> RouteCost:
        route = network.route(depth)
        seconds = median_s(lambda: _infer(route, tensors["s"], tensors.get("mask")))
        return RouteCost(depth, trainable(route), seconds / size, size)

    with network.configured():
        return [cost(depth) for depth in depths]


def whole_batch(data: Dataset) -> Batch:
    """The first mini-batch of the largest split, which is the one most likely to be full."""
    largest = max((name for name, split in data.splits.items() if split), key=lambda name: len(data.splits[name] or ()))
    return next(iter(EvaluationBatches(data, largest)))


@torch.no_grad()
def _infer(route: Route, samples: torch.Tensor, mask: torch.Tensor | None) -> None:
    route(samples, mask)
    wait_for_all(samples.device)


def median_s(work: Callable[[], None]) -> float:
    """Seconds that some work takes: the median over repeats, after a first one that does not count."""
    work()
    times: list[float] = []
    while len(times) < _MOST_REPEATS and (len(times) < _LEAST_REPEATS or sum(times) < _ENOUGH_S):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return median(times)
