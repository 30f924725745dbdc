"""How the probe takes a time: parts of some work run one after another, again and again; the median of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

PROBE_S = 0.6  # spent on one kind of component, at least LEAST_REPEATS times
LEAST_REPEATS = 3
MOST_REPEATS = 30
WARM_UPS = 2


@dataclass(frozen=True)
class Timed:
    """Medians of the parts by name, and all the time that was spent; seconds."""

    medians: dict[str, float]
    wall_s: float
    processor_s: float  # over all threads


def time_parts(parts: Mapping[str, Callable[[], None]], *, on_cuda: bool = False) -> Timed:
    """Run all parts in order, for about `PROBE_S`; the first `WARM_UPS` rounds do not count in the medians."""
    samples: dict[str, list[float]] = {name: [] for name in parts}
    began = time.perf_counter()
    processor_s = 0.0
    repeats = 0
    while repeats < WARM_UPS + LEAST_REPEATS or (
        repeats < WARM_UPS + MOST_REPEATS and time.perf_counter() - began <= PROBE_S
    ):
        for name, part in parts.items():
            started, busy = time.perf_counter(), time.process_time()
            part()
            if on_cuda:
                torch.cuda.synchronize()
            samples[name].append(time.perf_counter() - started)
            processor_s += time.process_time() - busy
        repeats += 1
    medians = {name: median(values[WARM_UPS:]) for name, values in samples.items()}
    return Timed(medians, sum(map(sum, samples.values())), processor_s)
