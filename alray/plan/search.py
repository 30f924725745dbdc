"""Search: the cut whose simulated step is the shortest, where no dynamic programme can tell.

The step of a pipeline hangs on all its stages at once, not on the slowest alone; so does that of every schedule with
one mini-batch at a time when devices differ. The bound of a cut is cheap to reckon and no step is under it: cuts are
simulated in the order of their bounds, until the bounds pass the best step found. Where there are few enough cuts
this is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, pairwise
from math import comb, inf

from alray.plan.bounds import bound_of
from alray.plan.durations import action_durations, computing_s
from alray.plan.memory import memory_of
from alray.plan.partition import partition_auto
from alray.plan.predict import program_of
from alray.plan.setting import Setting
from alray.plan.simulate import simulate

Cut = tuple[int, ...]

MOST_CUTS = 4_000  # beyond, only cuts near the best so far are looked at
MOST_ACTIONS = 2_000_000  # simulated in one search, a few seconds
_SAME = 1e-9  # steps nearer to each other than this share are equal


def search_partition(setting: Setting, start: Cut | None = None) -> Cut:
    """The cut with the shortest simulated step; of equal ones that with the smallest bound, then with the smallest
    sum of squares of stage times, then the earliest cut.

    Exact up to `MOST_CUTS` cuts. Beyond, boundaries move one component at a time from `start` (by default the cut
    with the fastest slowest part) while that makes the step shorter. Cuts that do not fit `memory_limits` are left
    out; `start` must fit.
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
    """All cuts of `size` components into `parts` runs, none empty, the earliest first."""
    for places in combinations(range(1, size), parts - 1):
        yield tuple(end - first for first, end in pairwise((0, *places, size)))


def fits(setting: Setting, cut: Cut) -> bool:
    """Whether every stage of the cut keeps within its memory limit."""
    return all(memory_of(setting, cut, stage).total_bytes <= limit for stage, limit in enumerate(setting.memory_limits))


class _Search:
    """Steps of cuts, each simulated once, for as long as the budget lasts."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._program = program_of(setting)
        size = sum(len(codes) for codes in self._program.codes)
        self._left = max(16, MOST_ACTIONS // size)
        self._steps: dict[Cut, float] = {}

    def best_of(self, cuts: Iterable[Cut], known: Cut | None) -> tuple[Cut | None, bool]:
        """The cut with the shortest step among `cuts` and `known`, and whether it is not `known`."""
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
        return _rounded(bound_of(self._setting, durations)), _rounded(squares), cut

    def _step(self, cut: Cut) -> float:
        if cut not in self._steps:
            self._left -= 1
            durations = action_durations(self._setting, cut)
            self._steps[cut] = simulate(self._program, durations, in_flight=self._setting.room).step_time_s
        return self._steps[cut]


def _rounded(value: float) -> float:
    """Without the last digits, in which sums differ by the order of their terms, so that equal cuts are equal."""
    return float(f"{value:.10g}")


def _neighbours(cut: Cut) -> Iterator[Cut]:
    """The cuts in which one component has moved over one boundary."""
    for place in range(len(cut) - 1):
        for step in (1, -1):
            if cut[place] + step >= 1 and cut[place + 1] - step >= 1:
                yield (*cut[:place], cut[place] + step, cut[place + 1] - step, *cut[place + 2 :])
