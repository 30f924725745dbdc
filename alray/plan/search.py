"""Search for the cut with the shortest simulated step, where a dynamic programme cannot find it.

The step of a pipeline depends on all its stages together, not only on the slowest one. So does the step of a schedule
with a barrier on devices of different speeds. The bound of a cut is cheap to compute, and no step is shorter than it.
Cuts are therefore simulated in the order of their bounds, until the bounds exceed the shortest step found. The result
is exact where there are at most `MOST_CUTS` cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from math import comb, inf

from alray.plan.durations import action_durations, computing_s
from alray.plan.memory import memory_of
from alray.plan.partition import Cut, partition_auto
from alray.plan.predict import program_of
from alray.plan.setting import Setting
from alray.plan.simulate import simulate
from alray.schedules.table import SCHEDULES

MOST_CUTS = 4_000  # where there are more, only neighbours of the best cut so far are tried
MOST_ACTIONS = 2_000_000  # simulated in one search, a few seconds
_SAME = 1e-9  # relative difference below which two steps count as equal


def search_partition(setting: Setting, start: Cut | None = None) -> Cut:
    """The cut with the shortest simulated step.

    Ties go to the smallest bound, then to the smallest sum of squared stage times, then to the earliest cut. The result
    is exact up to `MOST_CUTS` cuts. With more, boundaries move by one component at a time from `start` while that
    makes the step shorter; the default for `start` is the cut whose slowest part is fastest. Cuts that exceed
    `memory_limits` are left out; `start` must not exceed them.
    """
    search = _Search(setting)
    size = len(setting.costs.components)
    if comb(size - 1, setting.num_parts - 1) <= MOST_CUTS:
        best, _ = search.best_of(every_cut(size, setting.num_parts), None)
        assert best is not None, "the caller has made sure that some cut fits"
        return best
    if start is None:
        start = partition_auto([component.train_s for component in setting.costs.components], setting.num_parts)
    best, moved = start, True
    while moved:
        following, moved = search.best_of(_neighbours(best), best)
        best = following or best
    return best


def every_cut(size: int, parts: int) -> Iterator[Cut]:
    """All cuts of `size` components into `parts` runs, none of them empty, in dictionary order."""
    for places in combinations(range(1, size), parts - 1):
        yield tuple(end - first for first, end in pairwise((0, *places, size)))


def fits(setting: Setting, cut: Cut) -> bool:
    """Whether every stage of the cut keeps within its memory limit."""
    return all(memory_of(setting, cut, stage).total_bytes <= limit for stage, limit in enumerate(setting.memory_limits))


class _Search:
    """The simulated steps of cuts, each computed once, until the budget of simulations is used up."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._program = program_of(setting)
        size = sum(len(codes) for codes in self._program.codes)
        self._left = max(16, MOST_ACTIONS // size)
        self._steps: dict[Cut, float] = {}

    def best_of(self, cuts: Iterable[Cut], known: Cut | None) -> tuple[Cut | None, bool]:
        """The cut with the shortest step among `cuts` and `known`, and whether it differs from `known`."""
        best, shortest = known, self._step(known) if known is not None else inf
        for bound, _, cut in sorted(self._rank(cut) for cut in cuts):
            if bound >= shortest * (1.0 - _SAME) or (self._left <= 0 and best is not None):
                break
            if fits(self._setting, cut) and (step := self._step(cut)) < shortest * (1.0 - _SAME):
                best, shortest = cut, step
        return best, best != known

    def _rank(self, cut: Cut) -> tuple[float, float, Cut]:
        durations = action_durations(self._setting, cut)
        squares = sum(seconds**2 for seconds in computing_s(self._setting, durations))
        setting = self._setting
        bound = SCHEDULES[setting.schedule].bound(durations, setting.stages, setting.micro_batches)
        return _rounded(bound), _rounded(squares), cut

    def _step(self, cut: Cut) -> float:
        if cut not in self._steps:
            self._left -= 1
            durations = action_durations(self._setting, cut)
            self._steps[cut] = simulate(self._program, durations, in_flight=self._setting.in_flight).step_time_s
        return self._steps[cut]


def _rounded(value: float) -> float:
    """The value to ten digits. Later digits depend on the order of summation, and equal cuts must compare equal."""
    return float(f"{value:.10g}")


def _neighbours(cut: Cut) -> Iterator[Cut]:
    """The cuts that differ from `cut` by one component on the other side of one boundary."""
    for place in range(len(cut) - 1):
        for step in (1, -1):
            if cut[place] + step >= 1 and cut[place + 1] - step >= 1:
                yield (*cut[:place], cut[place] + step, cut[place + 1] - step, *cut[place + 2 :])
