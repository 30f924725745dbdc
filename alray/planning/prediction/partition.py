"""Partitions: the chain of components is cut into contiguous stages, and no stage is empty.

A partition is the number of components of each stage, in order. The best one is found by a dynamic programme over all
contiguous cuts: its most expensive stage is as cheap as possible. Ties go to the smallest sum of squared stage costs,
then to the earliest cut (the first in dictionary order).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from alray.core.errors import PlanError
from alray.planning.schedules.partition_rules import Fault, partition_faults, stage_faults

Matrix = NDArray[np.float64]

Cut = tuple[int, ...]

_Value = TypeVar("_Value", np.float64, np.bool_)

_BITS = 40  # costs are rounded to 2^-40 of the largest, so that sums are exact and equal costs are equal


def partition_uniform(num_components: int, stages: int) -> Cut:
    """The same number of components on each stage; the first stages take one more where the division leaves a rest."""
    check_size(num_components, stages)
    each, left = divmod(num_components, stages)
    return tuple(each + (stage < left) for stage in range(stages))


def partition_auto(costs: Sequence[float], stages: int) -> Cut:
    """The partition whose most expensive stage is the cheapest.

    Args:
        costs: of each component, in any unit.

    Raises:
        PlanError: where there are more stages than components.
    """
    check_size(len(costs), stages)
    return partition_intervals(interval_sums(costs), stages)[0]


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
    check_size(len(parameters), stages)
    if partition == "auto":
        return auto()
    if partition in ("uniform", "cyclic"):  # round-robin: one component on each virtual stage
        return partition_uniform(len(parameters), stages)
    if partition == "parameters":
        return partition_auto([float(count) for count in parameters], stages)
    if isinstance(partition, str):
        raise PlanError(
            f"unknown partition `{partition}`",
            hint="choose auto, uniform, parameters, cyclic, or give the number of components of each stage",
            key="pipeline.partition",
        )
    return check_partition(partition, len(parameters), stages)


def interval_sums(costs: Sequence[float]) -> Matrix:
    """A matrix whose [i, j] is the cost of components i to j - 1 together. Raises PlanError for costs below 0 or not
    finite."""
    if any(not math.isfinite(cost) or cost < 0 for cost in costs):
        raise PlanError(f"the cost of a component is not a finite number of 0 or more: {list(costs)}")
    unit = _power_of_two(max(costs), _BITS)
    before = np.concatenate([[0.0], np.cumsum(np.rint(np.array(costs, dtype=float) / unit))])
    sums: Matrix = (before[None, :] - before[:, None]) * unit
    return sums


def partition_intervals(
    cost: Matrix | Sequence[Matrix], stages: int, *, fits: Iterable[NDArray[np.bool_]] = (), known: Cut | None = None
) -> tuple[Cut, float]:
    """The best partition for any cost of a contiguous run of components, and the cost of its most expensive stage.

    Args:
        cost: [n + 1, n + 1]; [i, j] with i < j is the cost of a stage that holds components i to j - 1. Where stages
            differ, one such matrix per stage.
        fits: for each stage, a matrix of the same shape; false where the stage cannot hold that run. (): any run.
        known: a cut that fits, of which the search is faster and takes less memory; None with `fits`: none is known.

    Raises:
        PlanError: where no partition fits.
    """
    costs = [cost] if isinstance(cost, np.ndarray) else cost
    size = len(costs[0]) - 1
    check_size(size, stages)
    if known is None and fits == ():
        known = partition_uniform(size, stages)
    longest = size + 1 - stages if known is None else _longest_run(costs, known)
    open_costs = [short_runs(one, longest) for one in costs]
    fitting = [short_runs(one, longest) for one in fits]

    def of_stage(stage: int) -> Matrix:
        own = open_costs[stage % len(costs)]
        return np.where(fitting[stage], own, np.inf) if fitting else own

    return with_cheapest_largest(of_stage, size, stages)


def with_cheapest_largest(of_stage: Callable[[int], Matrix], size: int, stages: int) -> tuple[Cut, float]:
    """As `partition_intervals`, for costs as `slowest_behind` takes them."""
    slowest = float(slowest_behind(of_stage, size, stages)[0])
    if not math.isfinite(slowest):
        raise PlanError(
            f"no cut of {size} components into {stages} stages fits the memory of the devices",
            hint="use more stages, a smaller mini-batch or larger devices",
            key="pipeline.partition",
        )
    # Among the cuts that reach it, the smallest sum of squares.
    unit = _power_of_two(slowest, 0)

    def squares(stage: int) -> Matrix:
        own = of_stage(stage)
        found: Matrix = np.where(own <= slowest, own / unit, np.inf) ** 2
        return found

    cut = smallest_sum(squares, size, stages)
    assert cut is not None, "some cut reaches it"
    return cut[0], slowest


def short_runs(cost: NDArray[_Value], longest: int) -> NDArray[_Value]:
    """Of a matrix over all runs, those of up to `longest` components, in the order of `run_ends`. Behind the last
    component it has inf, or true."""
    size = len(cost) - 1
    ends = run_ends(size, longest)
    beyond = ends > size
    runs: NDArray[_Value] = np.take_along_axis(cost[:size], np.where(beyond, 0, ends), axis=1)
    runs[beyond] = np.inf
    return runs


def run_ends(size: int, longest: int) -> NDArray[np.int64]:
    """[size, longest]: the component behind each run. Row i has the runs from component i on, the shortest first."""
    ends: NDArray[np.int64] = np.arange(size)[:, None] + np.arange(1, longest + 1)
    return ends


def slowest_behind(of_stage: Callable[[int], Matrix], size: int, stages: int, first: int = 0) -> NDArray[np.float64]:
    """[size + 1]: the lowest possible cost of the most expensive one of stages `first` and later, where these hold each
    component and those after it.

    Args:
        of_stage: gives the cost of each run as a stage, in the order of `run_ends`; inf where it cannot be one.
    """
    ends = np.minimum(run_ends(size, of_stage(first).shape[1]), size)
    slowest = np.full(size + 1, np.inf)
    slowest[-1] = 0.0
    for stage in reversed(range(first, stages)):
        slowest = np.append(np.maximum(of_stage(stage), slowest[ends]).min(axis=1), np.inf)
    return slowest


def smallest_sum(of_stage: Callable[[int], Matrix], size: int, stages: int) -> tuple[Cut, float] | None:
    """The partition with the smallest sum of the costs of its stages, the earliest of several, and this sum. None where
    there is none.

    Args:
        of_stage: as for `slowest_behind`.
    """
    ends = np.minimum(run_ends(size, of_stage(0).shape[1]), size)
    after = np.full(size + 1, np.inf)
    after[-1] = 0.0
    lengths = []
    for stage in reversed(range(stages)):
        total = of_stage(stage) + after[ends]
        lengths.append(1 + np.argmin(total, axis=1))  # argmin takes the first: the earliest cut
        after = np.append(total.min(axis=1), np.inf)
    if not math.isfinite(after[0]):
        return None
    cut: list[int] = []
    for length in reversed(lengths):
        cut.append(int(length[sum(cut)]))
    return tuple(cut), float(after[0])


def _longest_run(costs: Sequence[Matrix], cut: Cut) -> int:
    """The most components of a stage that costs no more than the most expensive one of a cut."""
    most, first = 0.0, 0
    for stage, count in enumerate(cut):
        most = max(most, float(costs[stage % len(costs)][first, first + count]))
        first += count
    return min(len(costs[0]) - len(cut), max(longest_run(one, most) for one in costs))


def longest_run(cost: Matrix, most: float) -> int:
    """The most components of a run that costs no more than `most`."""
    lengths = np.arange(len(cost))[None, :] - np.arange(len(cost))[:, None]
    return int(lengths[(cost <= most) & (lengths > 0)].max(initial=1))


def check_partition(partition: Sequence[int], num_components: int, stages: int) -> Cut:
    """A partition that someone wrote, as a tuple. Raises PlanError unless it is complete and no stage is empty."""
    check_size(num_components, stages)
    _refuse(partition_faults(partition, num_components, stages))
    return tuple(partition)


def _power_of_two(value: float, bits: int) -> float:
    """About 2^-bits of the value, as a power of two: dividing by it loses no digits."""
    return math.ldexp(1.0, max(math.frexp(value)[1] - bits, -1000)) if value > 0 else 1.0


def check_size(num_components: int, stages: int) -> None:
    """Raise PlanError where there are more stages than components, or none."""
    if stages < 1:
        raise PlanError(f"{stages} stages", hint="use at least 1", key="pipeline.stages")
    _refuse(stage_faults(num_components, stages))


def _refuse(faults: Iterable[Fault]) -> None:
    for key, message, hint in faults:
        raise PlanError(message, hint=hint, key=f"pipeline.{key}")
