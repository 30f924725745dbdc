"""Search for the cut with the shortest simulated step.

The step of a pipeline, or of a schedule with barriers, depends on all stages and messages together, not only on the
slowest stage. So cuts are simulated, many at once. Up to `MOST_CUTS` cuts all of them are; with more, the search moves
from cut to cut, and what it finds need not be the best. It ends where it meets a bound that holds for all cuts
(`alray.planning.prediction.bound`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, pairwise
from math import comb

import numpy as np

from alray.planning.prediction.bound import least_step
from alray.planning.prediction.durations import action_durations, computing_s
from alray.planning.prediction.memory import memory_of
from alray.planning.prediction.partition import Cut, partition_auto
from alray.planning.prediction.predict import program_of, simulated_batches
from alray.planning.prediction.program import Floats
from alray.planning.prediction.setting import StepSetting
from alray.planning.prediction.simulate import simulation_of

MOST_CUTS = 8_000
"""The most cuts that one search simulates; they take about a second."""
MOST_ACTIONS = 40_000_000
"""The most actions that a search of all cuts simulates; they take one or two seconds."""
MOST_MOVED_ACTIONS = 2_000_000
"""The most actions that a search from cut to cut simulates: about a second."""
_COMPONENT_ACTIONS = 30
"""Adding up the durations of a cut takes as long for each component as simulating so many actions."""
NEAR = 1e-3
"""Relative distance from the bound at which a search ends."""
_AT_ONCE = 2_000_000
"""Actions that are simulated at once; they take some dozens of megabytes."""
SAME = 1e-9
"""Relative difference below which two steps count as equal."""
_EQUAL = 1e-6  # a prediction adds up its steps in another order


@dataclass(frozen=True)
class BestCut:
    """The best cut that a search has found.

    Attributes:
        step_s: its step, where each stage has its own processors.
        least_s: no cut has a shorter step there. Equal to `step_s` where the search was complete.
    """

    cut: Cut
    step_s: float
    least_s: float

    @property
    def is_best(self) -> bool:
        """Whether no cut is better."""
        return self.step_s <= self.least_s * (1.0 + SAME)

    def gain_of(self, step_s: float) -> float | None:
        """By which share of the least step this step of the cut is longer than that at most: no cut is better by more.
        None where it is longer than the step that was searched for, because stages share processors or computations
        are uneven: that changes the steps of other cuts too, and they were not compared with it."""
        if len(self.cut) == 1:
            return 0.0
        if step_s > self.step_s * (1.0 + _EQUAL):
            return None
        return 0.0 if self.is_best or self.least_s <= 0 else self.step_s / self.least_s - 1.0


def search_cut(setting: StepSetting, start: Cut, *, complete: bool = True) -> BestCut:
    """The cut with the shortest simulated step among those within the memory limits.

    Ties go to the smallest bound, then to the smallest sum of squared stage times, then to the earliest cut. With more
    than `MOST_CUTS` cuts, the search begins with `start` and with those that the bound of all cuts comes from. Of the
    best, a boundary is moved to wherever this makes the step shortest, again and again; where no boundary is left to
    move, two neighbours together, then three, until `MOST_MOVED_ACTIONS` were simulated or the step is near the bound.
    `start` must keep within the memory limits.

    Args:
        complete: whether all cuts are simulated where they are few enough.
    """
    steps = _SimulatedSteps(setting)
    size, parts = len(setting.costs.components), setting.num_parts
    number = comb(size - 1, parts - 1)
    if complete and number <= steps.affordable:
        found = steps.shortest(list(every_cut(size, parts)))
        assert found is not None, "`start` keeps within the memory limits"
        return BestCut(*found, least_s=found[1])
    steps.affordable = steps.most(MOST_MOVED_ACTIONS)
    best = steps.shortest([start])
    assert best is not None, "`start` keeps within the memory limits"
    near, least_s = least_step(setting, *best)
    if near and best[1] > least_s * (1.0 + NEAR):
        best = min(best, steps.shortest(near) or best, key=lambda found: found[1])
    together = 1
    while together < parts and steps.affordable > 0 and best[1] > least_s * (1.0 + NEAR):
        moved = steps.shortest(list(islice(_moves(best[0], together), steps.affordable)))
        if moved is not None and moved[1] < best[1] * (1.0 - SAME):
            best, together = moved, 1
        else:
            together += 1
    return BestCut(*best, least_s=min(least_s, best[1]))


def near_cut(setting: StepSetting) -> BestCut | None:
    """The fastest of an even cut and of those that the bound of all cuts comes from, without a search; None where none
    of them keeps within the memory limits. The setting has several parts."""
    steps = _SimulatedSteps(setting)
    even = partition_auto([component.train_s for component in setting.costs.components], setting.num_parts)
    cuts, least_s = least_step(setting, even, float(steps.of([even])[0]))
    found = steps.shortest([even, *cuts])
    return None if found is None else BestCut(*found, least_s=min(least_s, found[1]))


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
        self._simulation = simulation_of(program, setting.in_flight, links=any(setting.links))
        self._size = sum(len(codes) for codes in program.codes) * (self._repeats or 1)
        self.affordable = self.most(MOST_ACTIONS)

    def most(self, actions: int) -> int:
        """How many cuts may be simulated for so many actions."""
        of_cut = self._size + _COMPONENT_ACTIONS * len(self._setting.costs.components)
        return max(1, min(MOST_CUTS, actions // of_cut))

    def of(self, cuts: Sequence[Cut]) -> Floats:
        """The step of each cut."""
        self.affordable -= len(cuts)
        at_once = max(1, _AT_ONCE // self._size)
        found = []
        for first in range(0, len(cuts), at_once):
            every = [action_durations(self._setting, cut) for cut in cuts[first : first + at_once]]
            found.append(self._simulation.step_times(every, repeats=self._repeats))
        return np.concatenate(found)

    def shortest(self, cuts: Sequence[Cut]) -> tuple[Cut, float] | None:
        """The cut with the shortest step that keeps within the memory limits, and its step; None where no cut does."""
        if not cuts:
            return None
        steps = self.of(cuts)
        ties: list[Cut] = []
        shortest = np.inf
        for index in np.argsort(steps, kind="stable"):
            if steps[index] > shortest * (1.0 + SAME):
                break
            if fits(self._setting, cuts[index]):
                ties.append(cuts[index])
                shortest = min(shortest, float(steps[index]))
        if not ties:
            return None
        return (ties[0] if len(ties) == 1 else min(ties, key=self._rank)), shortest

    def _rank(self, cut: Cut) -> tuple[float, float, Cut]:
        setting = self._setting
        durations = action_durations(setting, cut)
        bound = setting.scheduled.bound(durations, setting.stages, setting.micro_batches)
        squares = sum(seconds**2 for seconds in computing_s(setting, durations))
        return _rounded(bound), _rounded(squares), cut


def _rounded(value: float) -> float:
    """The value to ten digits. Later digits depend on the order of summation, and equal cuts must compare equal."""
    return float(f"{value:.10g}")
