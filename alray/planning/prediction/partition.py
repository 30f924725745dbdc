"""Partitions: the chain of components is cut into contiguous stages, and no stage is empty.

A partition is the number of components of each stage, in order. The best one is found by a dynamic programme over all
contiguous cuts: its most expensive stage is as cheap as possible. Ties go to the smallest sum of squared stage costs,
then to the earliest cut (the first in dictionary order).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.costs import Costs
from alray.planning.schedules.partition_rules import partition_faults, refuse, stage_faults

Matrix = NDArray[np.float64]
Places = NDArray[np.int64] | int
RunCost = Callable[[Places, Places], Matrix]
"""Gives the cost of runs of components, from the first component of each and the one behind it. These are two arrays
that broadcast, or two numbers."""

Cut = tuple[int, ...]


_BITS = 40  # costs are rounded to 2^-40 of the largest, so that sums are exact and equal costs are equal


def partition_uniform(num_components: int, stages: int) -> Cut:
    """The same number of components on each stage; the first stages take one more where the division leaves a rest."""
    each, left = divmod(num_components, stages)
    return tuple(each + (stage < left) for stage in range(stages))


def partition_auto(costs: Sequence[float], stages: int) -> Cut:
    """The partition whose most expensive stage is the cheapest.

    Args:
        costs: of each component, in any unit; there are at least as many as stages.
    """
    size = len(costs)
    cost, known = run_sums(costs), np.cumsum([0, *partition_uniform(size, stages)])
    runs = runs_within(cost, cost, float(cost(known[:-1], known[1:]).max()), size, size + 1 - stages)
    return with_cheapest_largest(lambda stage: runs, size, stages)[0]


def requested_partition(
    partition: str | Sequence[int], parameters: Sequence[int], stages: int, *, auto: Callable[[], Cut]
) -> Cut:
    """The partition that the spec asks for.

    Args:
        partition: `auto`, which calls `auto`; `uniform`, the same number of components on each stage; `cyclic`, which
            is the same, as there are as many (virtual) stages as components; `parameters`, the partition whose largest
            stage has the fewest parameters; or the number of components of each stage.
        parameters: of each component.

    Raises:
        PlanError: where that is no partition of the components.
    """
    refuse(stage_faults(len(parameters), stages))
    if partition == "auto":
        return auto()
    if partition in ("uniform", "cyclic"):  # round-robin: one component on each virtual stage
        return partition_uniform(len(parameters), stages)
    if partition == "parameters":
        return partition_auto([float(count) for count in parameters], stages)
    assert not isinstance(partition, str), "a spec has no other names"
    refuse(partition_faults(partition, len(parameters), stages))
    return tuple(partition)


def values_of(costs: Costs, name: str) -> Matrix:
    """A field of all components."""
    return np.array([getattr(each, name) for each in costs.components], dtype=float)


def before(values: Sequence[float] | Matrix) -> Matrix:
    """[n + 1]: the sum of the values before each index."""
    return np.concatenate([[0.0], np.cumsum(values)])


def run_sums(costs: Sequence[float]) -> RunCost:
    """The cost of all components of runs together. No cost is below 0."""
    unit = _power_of_two(max(costs), _BITS)
    until = before(np.rint(np.array(costs, dtype=float) / unit))

    def of(first: Places, ends: Places) -> Matrix:
        sums: Matrix = (until[ends] - until[first]) * unit
        return sums

    return of


def with_cheapest_largest(
    of_stage: Callable[[int], Matrix], size: int, stages: int, *, more: float = 0.0
) -> tuple[Cut, float]:
    """The partition whose most expensive stage is the cheapest, and the cost of that stage; inf where no partition is
    possible.

    Args:
        more: by which share the most expensive stage of the partition may be above the cheapest possible cost, for
            more even ones.
        of_stage: as for `_cheapest`. It is asked twice for each stage, so that not all have to be in memory.
    """
    slowest = _cheapest(of_stage, size, stages, np.maximum)[1]
    # Among the cuts that reach it, the smallest sum of squares.
    unit = _power_of_two(slowest, 0)

    def squares(stage: int) -> Matrix:
        own = of_stage(stage)
        found: Matrix = np.where(own <= slowest * (1.0 + more), own / unit, np.inf) ** 2
        return found

    return _cheapest(squares, size, stages, np.add)[0], slowest


def short_runs(cost: RunCost, size: int, longest: int) -> Matrix:
    """[size, longest]: the costs of all runs of up to `longest` of `size` components. Row i has the runs from component
    i on, the shortest first; inf where a run would end behind the last component."""
    first = np.arange(size)[:, None]
    ends = first + np.arange(1, longest + 1)
    return np.where(ends > size, np.inf, cost(first, np.minimum(ends, size)))


def runs_within(cost: RunCost, least: RunCost, most: float, size: int, longest: int) -> Matrix:
    """As `short_runs`, up to the longest run that may cost no more than `most`.

    Args:
        least: no more than the cost; it does not fall where a run gets longer.
    """

    def all_cost_more(length: int) -> bool:
        first = np.arange(size + 1 - length)
        return bool((least(first, first + length) > most).all())

    return short_runs(cost, size, 1 + bisect_left(range(2, longest + 1), True, key=all_cost_more))


def _cheapest(of_stage: Callable[[int], Matrix], size: int, stages: int, together: np.ufunc) -> tuple[Cut, float]:
    """The partition with the lowest cost, the earliest of several, and this cost; inf where there is none.

    Args:
        of_stage: gives the cost of each run as a stage, in the order of `short_runs`; inf where it cannot be one.
        together: the cost of all stages from those of two groups of them.
    """
    after = np.full(size + 1, np.inf)  # the lowest cost of the stages behind, where these begin with each component
    after[-1] = 0.0
    lengths = []
    for stage in reversed(range(stages)):
        own = of_stage(stage)
        total = together(own, _at_ends(after, own))
        lengths.append(1 + np.argmin(total, axis=1))  # argmin takes the first: the earliest cut
        after = np.append(total.min(axis=1), np.inf)
    cut: list[int] = []
    for length in reversed(lengths):
        cut.append(int(length[sum(cut)]))
    return tuple(cut), float(after[0])


def _at_ends(values: NDArray[np.float64], runs: Matrix) -> Matrix:
    """Of values [size + 1], the one behind each of these runs; inf behind the last component."""
    longest = runs.shape[1]
    return np.lib.stride_tricks.sliding_window_view(np.append(values[1:], np.full(longest - 1, np.inf)), longest)


def _power_of_two(value: float, bits: int) -> float:
    """About 2^-bits of the value, as a power of two: dividing by it loses no digits."""
    return math.ldexp(1.0, max(math.frexp(value)[1] - bits, -1000)) if value > 0 else 1.0
