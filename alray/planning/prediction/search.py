"""Search for the cut with the shortest simulated step.

The step of a pipeline, or of a schedule with barriers, depends on all stages and messages together, not only on the
slowest stage. So cuts are simulated, many at once. Up to `MOST_CUTS` cuts all of them are; with more, the search moves
from cut to cut, and what it finds need not be the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from math import comb

import numpy as np

from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.partition import Cut
from alray.planning.prediction.predict import program_of, simulated_batches
from alray.planning.prediction.program import Floats
from alray.planning.prediction.seconds import RunSeconds, computing_s
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.simulate import simulation_of

MOST_CUTS = 8_000
"""The most cuts that one search simulates; they take about a second."""
MOST_ACTIONS = 40_000_000
"""The most actions that a search of all cuts simulates; they take one or two seconds."""
MOST_MOVED_ACTIONS = 2_000_000
"""The most actions that a search from cut to cut simulates: about a second."""
_AT_ONCE = 2_000_000
"""Actions that are simulated at once; they take some dozens of megabytes."""
SAME = 1e-9
"""Relative difference below which two steps count as equal."""


@dataclass(frozen=True)
class BestCut:
    """The best cut that a search has found.

    Attributes:
        step_s: its step, where each stage has its own processors.
        is_best: whether no cut has a shorter step there.
    """

    cut: Cut
    step_s: float
    is_best: bool


def search_cut(setting: StepSetting, starts: Sequence[Cut]) -> BestCut:
    """The cut with the shortest simulated step among those within the memory limits.

    Ties go to the smallest sum of squared stage times, then to the earliest cut. With more than `MOST_CUTS` cuts, the
    search begins with the best of `starts`. A boundary is moved to wherever this makes the step shortest, again and
    again; where no boundary is left to move, two neighbours together, then three, until `MOST_MOVED_ACTIONS` were
    simulated. `starts` must keep within the memory limits.
    """
    steps = _SimulatedSteps(setting)
    size, parts = len(setting.costs.components), setting.num_parts
    number = comb(size - 1, parts - 1)
    if number <= steps.affordable:
        return BestCut(*steps.shortest(list(every_cut(size, parts))), is_best=True)
    steps.affordable = steps.most(MOST_MOVED_ACTIONS)
    best, together = steps.shortest(starts), 1
    while together < parts and steps.affordable > 0:
        moved = steps.shortest(list(islice(_moves(best[0], together), steps.affordable)))
        if moved[1] < best[1] * (1.0 - SAME):
            best, together = moved, 1
        else:
            together += 1
    return BestCut(*best, is_best=False)


def step_of(setting: StepSetting, cut: Cut) -> float:
    """The simulated step of one cut, where each stage has its own processors."""
    return float(_SimulatedSteps(setting).of([cut])[0])


def every_cut(size: int, parts: int) -> Iterator[Cut]:
    """All cuts of `size` components into `parts` runs, none of them empty, in dictionary order."""
    for boundaries in combinations(range(1, size), parts - 1):
        yield _cut_at((0, *boundaries, size))


def _moves(cut: Cut, together: int) -> Iterator[Cut]:
    """The cuts with so many boundaries, next to each other, at other positions between those around them.

    One boundary moves by one component everywhere, then by two, and so on.
    """
    ends = (0, *(int(end) for end in np.cumsum(cut)))
    if together == 1:
        for distance in range(1, max(cut)):
            for first in range(1, len(cut)):
                for moved in (ends[first] - distance, ends[first] + distance):
                    if ends[first - 1] < moved < ends[first + 1]:
                        yield _cut_at((*ends[:first], moved, *ends[first + 1 :]))
        return
    for first in range(1, len(cut) + 1 - together):
        after = first + together
        for boundaries in combinations(range(ends[first - 1] + 1, ends[after]), together):
            if boundaries != ends[first:after]:
                yield _cut_at((*ends[:first], *boundaries, *ends[after:]))


def _cut_at(ends: Sequence[int]) -> Cut:
    return tuple(end - first for first, end in pairwise(ends))


def fits(setting: StepSetting, cut: Cut) -> bool:
    """Whether every stage of the cut keeps within its memory limit."""
    return all(memory_of(setting, cut, stage).total_bytes <= limit for stage, limit in enumerate(setting.memory_limits))


class _SimulatedSteps:
    """Simulates cuts. `affordable`: how many more may be simulated."""

    def __init__(self, setting: StepSetting) -> None:
        self._setting = setting
        # Of a schedule with a flush one mini-batch is as good as many, again and again.
        flushes = setting.scheduled.is_pipeline and not setting.scheduled.gradient_delay
        self._repeats = simulated_batches(setting) if flushes else None
        program = program_of(setting, 1 if flushes else None)
        self._seconds = RunSeconds(setting)
        self._simulation = simulation_of(program, setting.in_flight, self._seconds.lines)
        self._size = sum(map(len, program.lists)) * (self._repeats or 1)
        self.affordable = self.most(MOST_ACTIONS)

    def most(self, actions: int) -> int:
        """How many cuts may be simulated for so many actions."""
        return max(1, min(MOST_CUTS, actions // self._size))

    def of(self, cuts: Sequence[Cut]) -> Floats:
        """The step of each cut."""
        self.affordable -= len(cuts)
        at_once = max(1, _AT_ONCE // self._size)
        found = []
        for first in range(0, len(cuts), at_once):
            durations = self._seconds.of_cuts(cuts[first : first + at_once])
            found.append(self._simulation.step_times(durations, repeats=self._repeats))
        return np.concatenate(found)

    def shortest(self, cuts: Sequence[Cut]) -> tuple[Cut, float]:
        """The cut with the shortest step that keeps within the memory limits, and its step; where none does, an empty
        one, whose step is endless."""
        if not cuts:
            return (), np.inf
        steps = self.of(cuts)
        ties: list[Cut] = []
        shortest = np.inf
        for index in np.argsort(steps, kind="stable"):
            if steps[index] > shortest * (1.0 + SAME):
                break
            if fits(self._setting, cuts[index]):
                ties.append(cuts[index])
                shortest = min(shortest, float(steps[index]))
        return min(ties, key=self._rank, default=()), shortest

    def _rank(self, cut: Cut) -> tuple[float, Cut]:
        squares = sum(seconds**2 for seconds in computing_s(self._setting, self._seconds.of_cuts(cut)))
        # Later digits depend on the order of summation, and equal cuts must compare equal.
        return float(f"{squares:.10g}"), cut
