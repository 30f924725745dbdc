"""What a pipeline of backpropagation adds to a component's costs: micro-batches and split backwards.

A micro-batch does not take its share of a mini-batch: each operation has an overhead, and smaller tensors lie nearer to
the processor. A split backward (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2) walks the graph twice.
So both are measured, at the size of the spec's micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.nn import functional

from alray.nn.component import BackpropagationComponent
from alray.nn.encoder import Tensors, in_default_strides
from alray.probe.timing import Timing, time_parts


@dataclass(frozen=True)
class MicroBatchTimes:
    """Of one micro-batch in one component, seconds; a backward adds to the gradients of those before it."""

    forward_s: float
    backward_s: float
    input_gradient_s: float  # of the backward in two parts; 0 for the first component, whose input needs no gradient
    weight_gradients_s: float


def time_micro_batch(
    component: BackpropagationComponent, incoming: Tensors, samples: int, timing: Timing
) -> MicroBatchTimes:
    """Times of the first `samples` samples of `incoming`."""
    own = {name: tensor[:samples] for name, tensor in incoming.items()}
    whole, split = _Whole(component, own), _Split(component, own)
    timed = time_parts({"forward_s": whole.forward, "backward_s": whole.backward}, timing).medians
    halves = {"input_gradient_s": 0.0, "weight_gradients_s": 0.0}
    if component.index > 0:
        parts: dict[str, Callable[[], None]] = {
            "forward_s": split.forward,
            "input_gradient_s": split.input_gradient,
            "weight_gradients_s": split.weight_gradients,
        }
        halves = time_parts(parts, timing).medians
    for optimizer in component.optimizers().values():
        optimizer.zero_grad()
    return MicroBatchTimes(
        timed["forward_s"], timed["backward_s"], halves["input_gradient_s"], halves["weight_gradients_s"]
    )


class _Whole:
    """F and B of a micro-batch, one after the other."""

    def __init__(self, component: BackpropagationComponent, incoming: Tensors) -> None:
        self.component, self.incoming = component, incoming
        self.input: torch.Tensor | None = None
        self.output: torch.Tensor | None = None

    def forward(self) -> None:
        self.input = self.incoming["s"].detach()
        if self.input.is_floating_point() and self.component.index > 0:
            self.input.requires_grad_()
        out = in_default_strides(self.component.f.run({**self.incoming, "s": self.input}, 0))
        self.output = out["s"]
        if self.component.head is not None:
            scores = self.component.head(out["s"], out.get("mask"))
            self.output = functional.cross_entropy(scores, self.incoming["labels"])

    def backward(self) -> None:
        assert self.output is not None, "B before F"
        if self.output.requires_grad:
            self.output.backward(torch.ones_like(self.output))
        self.input = self.output = None


class _Split(_Whole):
    """The same with torch's backward in two parts."""

    def __init__(self, component: BackpropagationComponent, incoming: Tensors) -> None:
        super().__init__(component, incoming)
        self._groups: list[dict[str, Any]] = []

    def input_gradient(self) -> None:
        assert self.input is not None and self.output is not None, "I before F"
        _, self._groups = stage_backward_input(
            (self.output,), [torch.ones_like(self.output)], [self.input], self.component.parameters()
        )

    def weight_gradients(self) -> None:
        stage_backward_weight(self.component.parameters(), self._groups)
        self._groups = []
        self.input = self.output = None
