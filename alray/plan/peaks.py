"""When a stage holds most: the moments of a mini-batch that could be its peak, priced for any run of components.

Between two computations a stage holds gradients and, for each mini-batch or micro-batch between its forward and its
backward, what the forward left. Inside a computation one component after another has its turn, with tensors of its own
that come and go; what the components before it left, or those behind it still need, is held meanwhile. So the peak of
a run of components is the largest of one value a component, and the largest over a mini-batch's moments is the stage's.

Prices are arrays over all runs of components at once, [i, j] for the components i to j - 1, or of single runs; the
arithmetic is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from alray.plan.costs import Costs
from alray.plan.pipelines import compute_order

Values = NDArray[np.float64]
Doing = Literal["forward", "backward", "adding", "update", "local_backward", "local_update"]
"""What goes on: `backward` begins without gradients, `adding` adds to those of earlier micro-batches; local losses
have their own backward, upwards again, and still hold what was passed on in their update."""


@dataclass(frozen=True)
class Moment:
    """A computation of virtual stage `own` of a stage, while the stage holds other things.

    held: micro-batches of each virtual stage between forward and backward, the one under way included in a backward.
    gradients: whether each virtual stage has its gradients.
    """

    doing: Doing
    own: int
    held: tuple[int, ...]
    gradients: tuple[bool, ...]


@dataclass(frozen=True)
class RunPeaks:
    """Bytes of runs of components, beside their weights and optimizer state, of one micro-batch."""

    kept: Values  # between forward and backward
    gradients: Values
    forward: Values  # the most during a forward
    backward: Values  # during a backward that begins without gradients, those it makes included
    adding: Values  # during one that adds to gradients, those not included
    local_backward: Values  # during the backwards of local losses, the gradients of all components included
    update: Values  # beside the gradients
    output: Values  # what the last component passed on

    def at(self, own: range) -> RunPeaks:
        """Those of one run, as single values."""
        return RunPeaks(*(np.asarray(values[own.start, own.stop]) for values in vars(self).values()))


@dataclass(frozen=True)
class Priced:
    """What a moment takes, bytes: in all, and of it gradients and what forwards left."""

    total: Values
    gradients: Values
    activations: Values


def price(moment: Moment, runs: Sequence[RunPeaks]) -> Priced:
    """What a stage with these virtual stages holds at most in `moment`."""
    own = runs[moment.own]
    zero = np.zeros_like(own.kept)
    gradients = sum((run.gradients for run, has in zip(runs, moment.gradients, strict=True) if has), start=zero)
    if moment.doing in ("update", "local_update"):
        passed_on = own.output if moment.doing == "local_update" else zero
        return Priced(gradients + own.update + passed_on, gradients, passed_on)
    activations = sum((count * run.kept for run, count in zip(runs, moment.held, strict=True)), start=zero)
    if moment.doing == "forward":
        return Priced(gradients + activations + own.forward, gradients, activations + own.kept)
    during = {"backward": own.backward, "adding": own.adding, "local_backward": own.local_backward - own.gradients}
    return Priced(gradients + activations - own.kept + during[moment.doing], gradients, activations)


def local_moments() -> tuple[Moment, ...]:
    """Of a stage with local losses: gradients of the last mini-batch are there until they are replaced."""
    return (
        Moment("forward", 0, (0,), (True,)),
        Moment("local_backward", 0, (1,), (True,)),
        Moment("local_update", 0, (0,), (True,)),
    )


def turn_moments(micro_batches: int) -> tuple[Moment, ...]:
    """Of backpropagation on one stage: each micro-batch goes forward and back before the next one."""
    adding = (Moment("adding", 0, (1,), (True,)),) if micro_batches > 1 else ()
    return (
        Moment("forward", 0, (0,), (True,)),
        Moment("backward", 0, (1,), (False,)),
        *adding,
        Moment("update", 0, (0,), (True,)),
    )


@lru_cache(maxsize=256)
def pipeline_moments(
    schedule: str, stage: int, stages: int, micro_batches: int, virtual_stages: int
) -> tuple[Moment, ...]:
    """Of a stage of a pipeline, which begins a mini-batch without gradients; every moment once.

    A backward that is split is two moments: what its forward left is held until the second half is done.
    """
    held = [0] * virtual_stages
    has = [False] * virtual_stages
    moments: dict[Moment, None] = {}
    for kind, number, _ in compute_order(schedule, stage, stages, micro_batches, virtual_stages):
        own = number // stages
        backward: Doing = "adding" if has[own] else "backward"
        moments[Moment("forward" if kind == "F" else backward, own, tuple(held), tuple(has))] = None
        if kind == "F":
            held[own] += 1
        elif kind != "I":
            held[own] -= 1
            has[own] = True
    none, every = (0,) * virtual_stages, (True,) * virtual_stages
    for own in range(virtual_stages):
        moments[Moment("update", own, none, every)] = None
    return tuple(moments)


@lru_cache(maxsize=16)
def run_peaks(costs: Costs, micro_batches: int) -> RunPeaks:
    """Prices [n + 1, n + 1] of all runs of the components, of one of `micro_batches` equal parts of a mini-batch.

    What does not hang on the number of samples (a fresh gradient of a weight, say) is not cut.
    """
    components = costs.components

    def each(name: str) -> Values:
        return np.array([getattr(component, name) for component in components], dtype=float)

    def part(name: str, fixed: str | None = None) -> Values:
        whole, stays = each(name), each(fixed) if fixed is not None else 0.0
        values: Values = stays + (whole - stays) / micro_batches
        return values

    kept, gradients, output = part("activation_bytes"), each("gradient_bytes"), part("output_bytes")
    # Costs that were not counted have no peaks: then nothing comes and goes.
    forward = np.maximum(part("forward_peak_bytes"), kept)
    backward = np.maximum(part("backward_peak_bytes", "backward_fixed_bytes"), kept)
    adding = np.maximum(part("adding_peak_bytes", "adding_fixed_bytes"), kept)
    left, made = _before(kept), _before(gradients)
    first, last = left[:, None], made[None, :]  # of the components before i, and before j
    held: Values = left[None, :] - left[:, None]
    all_gradients: Values = made[None, :] - made[:, None]
    # Upwards: what the components below left is held. Downwards: what those above left is gone, their gradients are
    # there. Local losses go upwards again, and what a component passed on is held by the next one, as its input.
    mine = backward - gradients - left[1:]
    over_output = mine + np.concatenate([[0.0], output[:-1]])
    begins = np.concatenate([mine, [-np.inf]])[:, None]
    local = np.maximum(begins, _largest(over_output, beyond_first=True)) + left[None, :]
    return RunPeaks(
        kept=held,
        gradients=all_gradients,
        forward=_largest(left[:-1] + forward) - first,
        backward=_largest(left[:-1] + backward - made[1:]) - first + last,
        adding=_largest(left[:-1] + adding) - first,
        local_backward=local + all_gradients,
        update=_largest(each("update_peak_bytes")),
        output=np.broadcast_to(np.concatenate([[0.0], output]), held.shape),
    )


def _before(values: Values) -> Values:
    """[n + 1]: the sum of the values before each place."""
    return np.concatenate([[0.0], np.cumsum(values)])


def _largest(values: Values, *, beyond_first: bool = False) -> Values:
    """[n + 1, n + 1]: [i, j] is the largest of values i to j - 1 (i + 1 to j - 1), where there are any, else -inf."""
    size = len(values)
    table = np.full((size + 1, size + 1), -np.inf)
    for start in range(size):
        begin = start + beyond_first
        table[start, begin + 1 :] = np.maximum.accumulate(values[begin:])
    return table
