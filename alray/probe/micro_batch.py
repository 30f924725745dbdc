"""The costs that a pipeline of backpropagation adds to a component: micro-batches and split backward passes.

A micro-batch does not take its share of the time of a mini-batch: each operation has an overhead, and smaller tensors
stay in the processor's caches. A split backward pass (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2)
goes through the graph twice. So both are measured, at the size of the spec's micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from alray.nn.component import Exercise
from alray.probe.timing import Timing, time_parts


@dataclass(frozen=True)
class MicroBatchTimes:
    """Seconds of one micro-batch in one component. Its backward pass adds to the gradients of earlier ones."""

    forward_s: float
    backward_s: float
    input_gradient_s: float  # of the split backward pass; 0 without one, and where the input needs no gradient
    weight_gradients_s: float


def time_micro_batch(exercise: Exercise, timing: Timing, *, splits: bool) -> MicroBatchTimes:
    """
    Args:
        exercise: of a component that does not have local losses, on one micro-batch.
        splits: whether its backward pass can be split. That of a compiled component cannot: it goes through its graph
            once.
    """
    timed = time_parts({"forward_s": exercise.forward, "backward_s": partial(exercise.backward, add=True)}, timing)
    halves = {"input_gradient_s": 0.0, "weight_gradients_s": 0.0}
    if splits and exercise.component.index > 0:
        split = SplitBackward(exercise)
        parts = {
            "forward_s": exercise.forward,
            "input_gradient_s": split.input_gradient,
            "weight_gradients_s": split.weight_gradients,
        }
        halves = time_parts(parts, timing).medians
    for optimizer in exercise.component.optimizers().values():
        optimizer.zero_grad()
    whole = timed.medians
    return MicroBatchTimes(
        whole["forward_s"], whole["backward_s"], halves["input_gradient_s"], halves["weight_gradients_s"]
    )


class SplitBackward:
    """B of a micro-batch in torch's two parts, in place of `Exercise.backward`."""

    def __init__(self, exercise: Exercise) -> None:
        self._exercise = exercise
        self._groups: list[dict[str, Any]] = []

    def input_gradient(self) -> None:
        """The gradient for the component below."""
        # Imported where it is needed: this takes two seconds.
        from torch.distributed.pipelining._backward import stage_backward_input

        start, end = self._exercise.input, self._exercise.output
        assert start is not None and end is not None, "B before F"
        if end._is_view():  # torch detaches it in place, which it refuses for a view; a stage copies it too
            end = end.clone()
        _, self._groups = stage_backward_input(
            (end,), [torch.ones_like(end)], [start], self._exercise.component.parameters()
        )

    def weight_gradients(self) -> None:
        """The gradients of the component's own parameters."""
        from torch.distributed.pipelining._backward import stage_backward_weight

        stage_backward_weight(self._exercise.component.parameters(), self._groups)
        self._groups = []
        self._exercise.input = self._exercise.output = None
