"""How the probe measures times: the parts of some work run in order, many times; the result is each part's median."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch

PROBE_S = 2.0  # for all kinds of components together; each runs at least LEAST_REPEATS times
LEAST_SHARE = 0.2  # of PROBE_S for each kind, however many there are
LEAST_REPEATS = 3
MOST_REPEATS = 80
WARM_UPS = 2
STEADY = 0.02
LEAST_OF_STEADY = 8
_OF_EVALUATION = ("infer_s", "route_s")  # no mini-batch of training has them: LEAST_REPEATS are enough
_CACHE_BYTES = 16 << 20


def is_steady(times: Sequence[float]) -> bool:
    """Whether the median is known to 2 % either way, with a confidence of 95 %.

    The interval is the distribution-free one, between two order statistics (Conover, Practical Nonparametric
    Statistics, section 3.2). Under eight times it would be their whole range.
    """
    if len(times) < LEAST_OF_STEADY:
        return False
    ordered, half = sorted(times), 0.98 * math.sqrt(len(times))
    low = ordered[max(0, math.floor(len(times) / 2 - half))]
    high = ordered[min(len(times) - 1, math.ceil(len(times) / 2 + half) - 1)]
    return high - low <= 2 * STEADY * median(ordered)


@dataclass(frozen=True)
class Timing:
    """How long to measure, and how many bytes to touch between two parts.

    A part that is repeated finds its weights in the processor's caches. In a run, the other components of the stage
    have used the caches since. On two cores this made the micro-batches of a Transformer 7 to 15 % slower.
    """

    kinds: int = 1  # of components that share PROBE_S
    other_bytes: int = 0  # that the other components of the network work on
    on_cuda: bool = False

    @property
    def seconds(self) -> float:
        """Time to spend on one kind of component."""
        return PROBE_S * max(LEAST_SHARE, 1.0 / self.kinds)


@dataclass(frozen=True)
class Timed:
    """Seconds: the median of each part by name, and the sums over all repeats."""

    medians: dict[str, float]
    wall_s: float
    processor_s: float  # over all threads


def time_parts(parts: Mapping[str, Callable[[], None]], timing: Timing) -> Timed:
    """Run all parts in order, repeatedly, until the median of a round is steady; at most for `timing.seconds`.

    Medians leave out the first `WARM_UPS` rounds. After `LEAST_REPEATS` more, the parts of evaluations run no more.
    """
    samples: dict[str, list[float]] = {name: [] for name in parts}
    others = torch.zeros(0 if timing.on_cuda else min(timing.other_bytes, _CACHE_BYTES), dtype=torch.uint8)
    began = time.perf_counter()
    processor_s = 0.0
    rounds: list[float] = []
    while len(rounds) < WARM_UPS + LEAST_REPEATS or (
        len(rounds) < WARM_UPS + MOST_REPEATS
        and time.perf_counter() - began <= timing.seconds
        and not is_steady(rounds[WARM_UPS:])
    ):
        for name, part in parts.items():
            if name in _OF_EVALUATION and len(rounds) >= WARM_UPS + LEAST_REPEATS:
                continue
            others.add_(1)
            started, busy = time.perf_counter(), time.process_time()
            part()
            if timing.on_cuda:
                torch.cuda.synchronize()
            samples[name].append(time.perf_counter() - started)
            processor_s += time.process_time() - busy
        rounds.append(sum(times[-1] for name, times in samples.items() if name not in _OF_EVALUATION))
    medians = {name: median(values[WARM_UPS:]) for name, values in samples.items()}
    return Timed(medians, sum(map(sum, samples.values())), processor_s)
