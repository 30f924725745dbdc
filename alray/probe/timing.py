"""How the probe takes a time: parts of some work run one after another, again and again; the median of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

PROBE_S = 3.0  # spent on all kinds of components together, each at least LEAST_REPEATS times
LEAST_SHARE = 0.2  # of that for one kind, however many there are
LEAST_REPEATS = 3
MOST_REPEATS = 80
WARM_UPS = 2
_CACHE_BYTES = 16 << 20


@dataclass(frozen=True)
class Timing:
    """How long parts are timed, and what becomes of the processor's caches in between.

    A part that is repeated finds its weights in the caches; in a run the other components of the stage have been at
    work since. On two cores the micro-batches of a Transformer took 7 to 15 % longer so.
    """

    kinds: int = 1  # of components that share PROBE_S
    other_bytes: int = 0  # what the others of the network work on
    on_cuda: bool = False

    @property
    def seconds(self) -> float:
        """For one kind of component."""
        return PROBE_S * max(LEAST_SHARE, 1.0 / self.kinds)


@dataclass(frozen=True)
class Timed:
    """Medians of the parts by name, and all the time that was spent; seconds."""

    medians: dict[str, float]
    wall_s: float
    processor_s: float  # over all threads


def time_parts(parts: Mapping[str, Callable[[], None]], timing: Timing) -> Timed:
    """Run all parts in order, for about `timing.seconds`; the first `WARM_UPS` rounds do not count in the medians."""
    samples: dict[str, list[float]] = {name: [] for name in parts}
    others = torch.zeros(0 if timing.on_cuda else min(timing.other_bytes, _CACHE_BYTES), dtype=torch.uint8)
    began = time.perf_counter()
    processor_s = 0.0
    repeats = 0
    while repeats < WARM_UPS + LEAST_REPEATS or (
        repeats < WARM_UPS + MOST_REPEATS and time.perf_counter() - began <= timing.seconds
    ):
        for name, part in parts.items():
            others.add_(1)
            started, busy = time.perf_counter(), time.process_time()
            part()
            if timing.on_cuda:
                torch.cuda.synchronize()
            samples[name].append(time.perf_counter() - started)
            processor_s += time.process_time() - busy
        repeats += 1
    medians = {name: median(values[WARM_UPS:]) for name, values in samples.items()}
    return Timed(medians, sum(map(sum, samples.values())), processor_s)
