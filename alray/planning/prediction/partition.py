"""Partitions: the chain of components is cut into contiguous stages, and no stage is empty.

A partition is the number of components of each stage, in order. The best one is found by a dynamic programme over all
contiguous cuts: its most expensive stage is as cheap as possible. Ties go to the smallest sum of squared stage costs,
then to the earliest cut (the first in dictionary order).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from alray.core.errors import PlanError
from alray.planning.schedules.partition_rules import Fault, partition_faults, stage_faults

Matrix = NDArray[np.float64]

Cut = tuple[int, ...]

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
    return partition_intervals(interval_sums(costs), stages)


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
    cost: Matrix | Sequence[Matrix], stages: int, *, fits: Sequence[NDArray[np.bool_]] | None = None
) -> Cut:
    """The best partition for any cost of a contiguous run of components.

    Args:
        cost: [n + 1, n + 1]; [i, j] with i < j is the cost of a stage that holds components i to j - 1. Where stages
            differ, one such matrix per stage.
        fits: for each stage, a matrix of the same shape; false where the stage cannot hold that run.

    Raises:
        PlanError: where no partition fits.
    """
    costs = [cost] if isinstance(cost, np.ndarray) else cost
    size = len(costs[0])
    check_size(size - 1, stages)
    longest = size - stages if fits is not None else _longest_run(costs, stages)
    # [n + 1, longest]: row i has the runs that begin with component i, the shortest first.
    ends = np.arange(size)[:, None] + np.arange(1, longest + 1)
    beyond = ends >= size
    ends[beyond] = 0
    open_costs = [np.where(beyond, np.inf, np.take_along_axis(one, ends, axis=1)) for one in costs]

    def of_stage(stage: int) -> Matrix:
        own: Matrix = open_costs[stage % len(costs)]
        return own if fits is None else np.where(np.take_along_axis(fits[stage], ends, axis=1), own, np.inf)

    # slowest[i]: the lowest possible cost of the most expensive stage, where the stages seen so far hold components i
    # and later.
    slowest = np.full(size, np.inf)
    slowest[-1] = 0.0
    for stage in reversed(range(stages)):
        slowest = np.maximum(of_stage(stage), slowest[ends]).min(axis=1)
    if not math.isfinite(slowest[0]):
        raise PlanError(
            f"no cut of {size - 1} components into {stages} stages fits the memory of the devices",
            hint="use more stages, a smaller mini-batch or larger devices",
            key="pipeline.partition",
        )
    # Among the cuts that reach it, the smallest sum of squares; after[k][i] is the sum for components i and later.
    unit = _power_of_two(slowest[0], 0)
    after = [np.full(size, np.inf) for _ in range(stages + 1)]
    after[stages][-1] = 0.0

    def squares(stage: int) -> Matrix:
        own = of_stage(stage)
        total: Matrix = np.where(own <= slowest[0], own / unit, np.inf) ** 2 + after[stage + 1][ends]
        return total

    for stage in reversed(range(stages)):
        after[stage] = squares(stage).min(axis=1)
    cuts = [0]
    for stage in range(stages):
        cuts.append(cuts[-1] + 1 + int(np.argmin(squares(stage)[cuts[-1]])))  # argmin takes the first: the earliest cut
    return tuple(end - start for start, end in pairwise(cuts))


def _longest_run(costs: Sequence[Matrix], stages: int) -> int:
    """The most components of a stage that costs no more than the most expensive one of the uniform cut."""
    size = len(costs[0])
    known, first = 0.0, 0
    for stage, count in enumerate(partition_uniform(size - 1, stages)):
        known = max(known, float(costs[stage % len(costs)][first, first + count]))
        first += count
    lengths = np.arange(size)[None, :] - np.arange(size)[:, None]
    return min(size - stages, max(int(lengths[(one <= known) & (lengths > 0)].max()) for one in costs))


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
