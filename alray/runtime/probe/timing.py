"""How the probe measures times: some actions run in order, many times; the result is each action's usual time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import mean, median

import torch

from alray.core.accelerator import is_accelerator, wait_for_all

PROBE_S = 2.0  # for all components together; each runs at least LEAST_REPEATS times
LEAST_SHARE = 0.2  # of PROBE_S for components that are measured together, however few they are
LEAST_REPEATS = 3
MOST_REPEATS = 80
WARM_UPS = 2
STEADY = 0.02
LEAST_OF_STEADY = 8
ROUNDS_AHEAD = 7
_OF_EVALUATION = ("infer_s", "route_s")  # no mini-batch of training has them: LEAST_REPEATS are enough


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
class ProbedAction:
    """One action of a component.

    Attributes:
        index: of the component in the network.
        name: of the field of `ComponentCosts` that gets the action's time.
    """

    index: int
    name: str
    run: Callable[[], None]


@dataclass(frozen=True)
class Timing:
    """How long to measure.

    Attributes:
        share: the part of `PROBE_S` that these measurements may take, in 0..1.
        device: an accelerator computes while the host goes on, so the end of each action is waited for, and then rounds
            are timed as a stage runs them, without these waits.
        blaming: gives the context within which each action of a component runs, by its index.
    """

    share: float = 1.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    blaming: Callable[[int], AbstractContextManager[None]] = lambda index: nullcontext()

    @property
    def seconds(self) -> float:
        return PROBE_S * max(LEAST_SHARE, self.share)


@dataclass
class ComponentTimings:
    """The measurements of one component.

    Attributes:
        seconds: of each action, by its name.
        wall_s: of all actions and repeats.
        processor_s: of the same, over all threads.
        micro_batch: seconds of actions on a micro-batch, by their names; {}: not measured.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    processor_s: float = 0.0
    micro_batch: dict[str, float] = field(default_factory=dict)

    @classmethod
    def mean_of(cls, alike: Sequence[ComponentTimings]) -> ComponentTimings:
        """The means over components that differ in their weights only."""
        first = alike[0]
        return cls(
            {name: mean(each.seconds[name] for each in alike) for name in first.seconds},
            mean(each.wall_s for each in alike),
            mean(each.processor_s for each in alike),
            {name: mean(each.micro_batch[name] for each in alike) for name in first.micro_batch},
        )


def time_actions(actions: Sequence[ProbedAction], timing: Timing) -> dict[int, ComponentTimings]:
    """Run all actions in order, repeatedly, until the median of a round is steady; at most for `timing.seconds`.

    The first `WARM_UPS` rounds do not count. After `LEAST_REPEATS` more, the actions of evaluations run no more. An
    action takes its median times one factor, with which all actions of training together take the median of a round:
    one that is sometimes interrupted takes longer than its median, and in a round some action is. On an accelerator
    it is a round without waits for its actions, if that is shorter: a stage gives its accelerator the next action
    meanwhile.
    """
    samples: list[list[float]] = [[] for _ in actions]
    timed = {action.index: ComponentTimings() for action in actions}
    began = time.perf_counter()
    rounds: list[float] = []
    while len(rounds) < WARM_UPS + LEAST_REPEATS or (
        len(rounds) < WARM_UPS + MOST_REPEATS
        and time.perf_counter() - began <= timing.seconds
        and not is_steady(rounds[WARM_UPS:])
    ):
        round_s = 0.0
        for action, times in zip(actions, samples, strict=True):
            if action.name in _OF_EVALUATION and len(rounds) >= WARM_UPS + LEAST_REPEATS:
                continue
            with timing.blaming(action.index):
                started, busy = time.perf_counter(), time.process_time()
                action.run()
                wait_for_all(timing.device)
                seconds = time.perf_counter() - started
            times.append(seconds)
            timed[action.index].wall_s += seconds
            timed[action.index].processor_s += time.process_time() - busy
            if action.name not in _OF_EVALUATION:
                round_s += seconds
        rounds.append(round_s)
    medians = [median(times[WARM_UPS:]) for times in samples]
    trained = [action for action in actions if action.name not in _OF_EVALUATION]
    factor = 1.0
    if trained:
        round_s = median(rounds[WARM_UPS:])
        if is_accelerator(timing.device):
            round_s = min(round_s, _round_ahead_s(trained, timing))
        together = zip(actions, medians, strict=True)
        factor = round_s / sum(seconds for action, seconds in together if action.name not in _OF_EVALUATION)
    for action, seconds in zip(actions, medians, strict=True):
        timed[action.index].seconds[action.name] = factor * seconds
    return timed


def _round_ahead_s(actions: Sequence[ProbedAction], timing: Timing) -> float:
    """The median time of a round for whose end alone the host waits."""
    rounds = []
    for _ in range(ROUNDS_AHEAD):
        started = time.perf_counter()
        for action in actions:
            with timing.blaming(action.index):
                action.run()
        wait_for_all(timing.device)
        rounds.append(time.perf_counter() - started)
    return median(rounds)
