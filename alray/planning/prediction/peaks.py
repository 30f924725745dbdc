"""Memory peaks: the moments of a mini-batch at which a stage may hold most, and their bytes for any run of components.

Between two computations a stage holds gradients and, for each mini-batch or micro-batch between its forward and its
backward, what the forward left. During a computation its components run one after another. Each allocates temporary
tensors, while the stage still holds what the components before it left and what those after it need. So the peak of a
run of components is the largest of one value per component, and the peak of a stage is the largest over the moments.

Prices are arrays over many runs of components, or single values for one run; the arithmetic is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import ge
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from alray.planning.prediction.costs import Costs
from alray.planning.prediction.partition import Places, before, values_of
from alray.planning.schedules.actions import Action
from alray.planning.schedules.schedule import Schedule, run_of

Values = NDArray[np.float64]
_MINI_BATCHES = 2  # each later one overlaps with the one before as the second does with the first
_NONE = np.zeros(())
Doing = Literal["forward", "backward", "adding", "update", "local_backward", "local_update"]
"""The computation: `backward` begins without gradients, `adding` adds to those of earlier micro-batches. The backward
of local losses goes upwards through the components, and their update still holds what was passed on."""


@dataclass(frozen=True)
class MemoryMoment:
    """A computation of virtual stage `own` of a stage, and what the whole stage holds during it.

    Attributes:
        held: for each virtual stage, how many micro-batches have had their forward and not yet their backward; during
            a backward its own micro-batch counts.
        gradients: for each virtual stage, whether it has gradients.
    """

    doing: Doing
    own: int
    held: tuple[int, ...]
    gradients: tuple[bool, ...]


@dataclass(frozen=True)
class RunPeaks:
    """Bytes that runs of components hold for one micro-batch, besides their weights and optimizer state."""

    activations: Values  # between forward and backward
    gradients: Values
    forward: Values  # the most during a forward
    backward: Values  # during a backward that begins without gradients, those it makes included
    adding: Values  # during one that adds to gradients, those not included
    local_backward: Values  # during the backwards of local losses, the gradients of all components included
    update: Values  # besides the gradients
    output: Values  # what the last component passed on


@dataclass(frozen=True)
class Priced:
    """Bytes that a stage holds in a moment: all of them, and of these the gradients and what forwards left."""

    total: Values
    gradients: Values
    activations: Values


def price(moment: MemoryMoment, runs: Sequence[RunPeaks]) -> Priced:
    """The most that a stage holds in `moment`.

    Args:
        runs: the components of each of its virtual stages.
    """
    own = runs[moment.own]
    gradients = sum((run.gradients for run, has in zip(runs, moment.gradients, strict=True) if has), start=_NONE)
    activations = sum((count * run.activations for run, count in zip(runs, moment.held, strict=True)), start=_NONE)
    if moment.doing == "local_update":
        activations = activations + own.output
    if moment.doing in ("update", "local_update"):
        return Priced(gradients + own.update + activations, gradients, activations)
    if moment.doing == "forward":
        return Priced(gradients + activations + own.forward, gradients, activations + own.activations)
    during = {"backward": own.backward, "adding": own.adding, "local_backward": own.local_backward - own.gradients}
    return Priced(gradients + activations - own.activations + during[moment.doing], gradients, activations)


@lru_cache(maxsize=256)
def moments_of(
    schedule: Schedule, stage: int, stages: int, micro_batches: int, virtual_stages: int
) -> tuple[MemoryMoment, ...]:
    """The moments at which a stage may hold most.

    A stage begins a mini-batch without gradients; with local losses it keeps those of a mini-batch until the next one's
    replace them. A split backward has two moments: what its forward left is kept until the second half ends. A forward
    that is computed again leaves nothing the first time.
    """
    local = schedule.local_losses
    run = run_of(schedule, stage, stages, 1 if local else _MINI_BATCHES, micro_batches, virtual_stages)
    again = {_micro_batch(action) for action in run if action.kind == "C"}
    held = [0] * virtual_stages
    has = [local] * virtual_stages
    moments: dict[MemoryMoment, None] = {}
    for action in run:
        own = action.stage // stages
        forward = action.kind in ("F", "C")
        if action.kind == "U":
            update: Doing = "local_update" if local else "update"
            moments[MemoryMoment(update, own, tuple(held), (True,) * virtual_stages)] = None
            has[own] = local
        elif forward or action.kind in ("B", "I", "G"):
            backward: Doing = "local_backward" if local else "adding" if has[own] else "backward"
            moments[MemoryMoment("forward" if forward else backward, own, tuple(held), tuple(has))] = None
            if forward:
                held[own] += action.kind == "C" or _micro_batch(action) not in again
            elif action.kind != "I":
                held[own] -= 1
                has[own] = True
    return _fullest(moments)


def _fullest(moments: Iterable[MemoryMoment]) -> tuple[MemoryMoment, ...]:
    """The moments without those that hold no more than another one with the same computation."""
    every = tuple(moments)
    most: dict[tuple[Doing, int, tuple[bool, ...]], list[tuple[int, ...]]] = {}
    for each in sorted(every, key=lambda moment: moment.held, reverse=True):  # before those that hold less of each
        found = most.setdefault((each.doing, each.own, each.gradients), [])
        if not any(all(map(ge, more, each.held)) for more in found):
            found.append(each.held)
    return tuple(each for each in every if each.held in most[each.doing, each.own, each.gradients])


def _micro_batch(action: Action) -> tuple[int, int, int]:
    return action.stage, action.batch, action.number


@lru_cache(maxsize=16)
def run_peaks(costs: Costs, micro_batches: int) -> Callable[[Places, Places], RunPeaks]:
    """Gives the prices of runs of components, for one of `micro_batches` equal parts of a mini-batch, from the first
    component of each run and the one behind it: two arrays that broadcast, or two numbers.

    What does not depend on the number of samples is not divided: the new gradient of a weight, or the copy of a weight
    in lower precision, which the graph of each micro-batch keeps.
    """
    each = partial(values_of, costs)

    def part(whole: Values, fixed: Values) -> Values:
        values: Values = fixed + (whole - fixed) / micro_batches
        return values

    activations = part(each("activation_bytes"), each("activation_fixed_bytes"))
    gradients = each("gradient_bytes")
    output = np.concatenate([[0.0], each("output_bytes") / micro_batches])
    # Given costs have no peaks: then there are no temporary tensors.
    forward, backward, adding = (
        np.maximum(part(each(f"{name}_peak_bytes"), each(f"{name}_fixed_bytes")), activations)
        for name in ("forward", "backward", "adding")
    )
    left, made = before(activations), before(gradients)  # of the components before each
    # A forward goes upwards and holds what the components below left. A backward goes downwards: what the components
    # above left is freed, and their gradients are there. A backward of local losses goes upwards again, and each
    # component holds the output of the one below as its input.
    mine = backward - gradients - left[1:]
    largest = _largest(
        left[:-1] + forward, left[:-1] + backward - made[1:], left[:-1] + adding, each("update_peak_bytes")
    )
    over_output = _largest(mine + output[:-1])

    def of(first: Places, ends: Places) -> RunPeaks:
        of_forward, of_backward, of_adding, update = largest(first, ends)
        held, all_gradients = left[ends] - left[first], made[ends] - made[first]
        local = np.maximum(mine[first], over_output(first + 1, ends)[0]) + left[ends]
        return RunPeaks(
            activations=held,
            gradients=all_gradients,
            forward=of_forward - left[first],
            backward=of_backward - left[first] + made[ends],
            adding=of_adding - left[first],
            local_backward=local + all_gradients,
            update=update,
            output=output[ends],
        )

    return of


def _largest(*rows: Values) -> Callable[[Places, Places], Values]:
    """Gives the largest of values i to j - 1 of each row, from i and j; -inf where there are none."""
    widths = [0, *(1 << level for level in range(len(rows[0]).bit_length()))]
    # [rows, widths, n + 1]: the largest of so many values from each index on.
    table = np.full((len(rows), len(widths), len(rows[0]) + 1), -np.inf)
    table[:, 1, :-1] = rows
    for level, width in enumerate(widths[1:-1], start=2):
        table[:, level] = table[:, level - 1]
        np.maximum(table[:, level, :-width], table[:, level - 1, width:], out=table[:, level, :-width])

    def of(first: Places, ends: Places) -> Values:
        level = np.frexp(ends - first)[1]  # the widest that is in the run: from its first value on, and up to its last
        found: Values = np.maximum(table[:, level, first], table[:, level, ends - np.array(widths)[level]])
        return found

    return of
