"""The costs that a pipeline of backpropagation adds to a component: micro-batches and split backward passes.

A micro-batch does not take its share of the time of a mini-batch: each operation has an overhead, and smaller tensors
stay in the processor's caches. A split backward pass (`alray.models.split_backward`) has its own overhead. So
both are measured, at the size of the spec's micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass
from functools import partial
from statistics import mean
from typing import Any

from torch.autograd.graph import get_gradient_edge

from alray.models.component import Exercise
from alray.models.split_backward import LaterWeights, SplitBackward
from alray.runtime.probe.neighbours import Neighbours
from alray.runtime.probe.timing import ComponentTimings, ProbedAction, Timing, time_actions


@dataclass(frozen=True)
class MicroBatchTimes:
    """Seconds of one micro-batch in one component. Its backward pass adds to the gradients of earlier ones."""

    forward_s: float
    backward_s: float
    input_gradient_s: float  # of the split backward pass; 0 without one, and where the input needs no gradient
    weight_gradients_s: float

    @classmethod
    def mean_of(cls, alike: Sequence[MicroBatchTimes]) -> MicroBatchTimes:
        """The times of components that differ in their weights only."""
        return cls(*(mean(times) for times in zip(*map(astuple, alike), strict=True)))


def time_micro_batches(
    neighbours: Neighbours,
    timing: Timing,
    *,
    splits: bool,
    blaming: Callable[[int], AbstractContextManager[None]] = lambda index: nullcontext(),
) -> dict[int, MicroBatchTimes]:
    """The times of components that compute a micro-batch as a stage does: first up, then down.

    Args:
        neighbours: components that do not have local losses, on one micro-batch.
        splits: whether a backward pass can be split. That of a compiled component cannot: it goes through its graph
            once.
        blaming: see `time_actions`.
    """
    exercises = neighbours.exercises
    backward = [
        ProbedAction(index, "backward_s", partial(each.backward, add=True)) for index, each in exercises.items()
    ]
    whole = time_actions([*neighbours.up("forward_s"), *backward[::-1]], timing, blaming)
    halves: dict[int, ComponentTimings] = {}
    # The first component of the network has no gradient for its input.
    above = Neighbours({index: each for index, each in exercises.items() if index > 0})
    if splits and above.exercises:
        split = {index: HalvedBackward(each) for index, each in above.exercises.items()}
        inputs = [ProbedAction(index, "input_gradient_s", each.input_gradient) for index, each in split.items()]
        weights = [ProbedAction(index, "weight_gradients_s", each.weight_gradients) for index, each in split.items()]
        halves = time_actions([*above.up("forward_s"), *inputs[::-1], *weights[::-1]], timing, blaming)
    for each in exercises.values():
        for optimizer in each.component.optimizers().values():
            optimizer.zero_grad()
    return {
        index: MicroBatchTimes(
            forward_s=whole[index].seconds["forward_s"],
            backward_s=whole[index].seconds["backward_s"],
            input_gradient_s=halves[index].seconds["input_gradient_s"] if index in halves else 0.0,
            weight_gradients_s=halves[index].seconds["weight_gradients_s"] if index in halves else 0.0,
        )
        for index in exercises
    }


class HalvedBackward:
    """B of a micro-batch in two parts, in place of `Exercise.backward`."""

    def __init__(self, exercise: Exercise) -> None:
        self._exercise = exercise
        self._split = SplitBackward([exercise.component])
        self._later = LaterWeights()
        exercise.around_forward = self._noting

    def _noting(self) -> AbstractContextManager[Any]:
        self._later = LaterWeights()
        return self._split.noting(self._later)

    def input_gradient(self) -> None:
        """The gradient for the component below, and those of small weights."""
        output = self._exercise.output
        assert output is not None, "B before F"
        roots = [get_gradient_edge(output)] if output.requires_grad else []
        del output  # B frees it
        with self._split.deferring(self._later, roots):
            self._exercise.backward(add=True)

    def weight_gradients(self) -> None:
        """The gradients of large weights."""
        self._later.compute()
