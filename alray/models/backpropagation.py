"""A component of a chain of backpropagation: its gradient comes from the one above."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge

from alray.models.component import Component, Exercise, ProfiledPart, backward_of, read
from alray.models.encoder import Encoder, Tensors, in_default_strides, stopped
from alray.models.gradients import clip, gradient_norms
from alray.models.optimizers import Recipe
from alray.models.shape import Shape
from alray.models.task import LearningTask


class BackpropagationComponent(Component):
    """Encoder f; the last component also has a classifier `head` and the loss."""

    def __init__(
        self,
        index: int,
        *,
        f: Encoder,
        head: nn.Module | None,
        optimizer: Recipe,
        learning: LearningTask,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(index, f)
        self.head = head
        self._learning = learning
        self._label_smoothing = label_smoothing
        self.train_with(optimizer, encoder=(f,) if head is None else (f, head))
        self.clip_norm = optimizer.section.clip_norm
        """Largest norm of the gradients of the whole network, which a component does not know."""
        for each in self._optimizers.values():
            each.clip_norm = None

    @property
    def updated(self) -> list[nn.Parameter]:
        """The parameters that have an optimizer."""
        return [parameter for optimizer in self._optimizers.values() for parameter in optimizer.parameters]

    @property
    def turn(self) -> nn.Module | None:
        return self.head

    def loss(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of the task for scores `[N, classes]` and labels as the data gives them, a scalar."""
        with self.naming("the loss"):
            return self._learning.loss(scores, labels, self._label_smoothing)

    @property
    def loss_name(self) -> str:
        """The name of the loss in records."""
        return self._learning.loss_name

    def exercise(self, incoming: Tensors, route: torch.Tensor, inference: Tensors | None = None) -> Exercise:
        return _BackpropagationExercise(self, incoming)

    def profiled_parts(self) -> Iterable[ProfiledPart]:
        of = f"component {self.index}"
        yield ProfiledPart("forward", of, self.f, "run", output=lambda outgoing: outgoing["s"])
        if self.head is not None:
            yield ProfiledPart("forward", f"{of}, head", self.head, "forward", output=lambda scores: scores)
        for optimizer in self._optimizers.values():
            yield ProfiledPart("update", of, optimizer, "step")


class _BackpropagationExercise(Exercise):
    """F ends in `s` or, at the last component, in the loss. B starts from a gradient of ones."""

    def __init__(self, component: BackpropagationComponent, incoming: Tensors) -> None:
        super().__init__(component, incoming)
        self._component = component
        self._leaf: torch.Tensor | None = None  # whose gradient is compressed and goes down

    def forward(self) -> None:
        incoming, below = self.incoming, self._component.below
        if below is not None:
            incoming = below.up.unpack(incoming, training=True)
        s = incoming["s"].detach()
        if s.is_floating_point() and self._component.index > 0:
            s.requires_grad_()  # the gradient for the component below is part of the cost
            self._leaf = None if below is None else s
        with self.around_forward():
            outgoing = in_default_strides(self._component.f.run({**incoming, "s": s}, 0))
            self.output = outgoing["s"]
            self.passed_on = stopped(outgoing)
            if self._component.above is not None:
                self.passed_on = self._component.above.up.pack(self.passed_on, (0,))
            if self._component.head is not None:
                self.output = self._component.loss(read(self._component.head, outgoing), self.incoming["labels"])

    def label(self) -> None:
        """Nothing: the only loss belongs to F of the last component."""

    def backward(self, *, add: bool = False) -> None:
        assert self.output is not None, "B before F"
        if not add:
            for optimizer in self._component.optimizers().values():
                optimizer.zero_grad()
        output = self.output
        self.output = None  # in a chain only the next component holds it, for as long as it needs it
        self.passed_on = {}
        if output.requires_grad:
            edge = get_gradient_edge(output)
            shape = output.shape
            dtype = output.dtype
            device = output.device
            del output
            gradient = self._from_above(shape, dtype, device)
            with backward_of([self._component]):
                torch.autograd.backward((edge,), (gradient,))
        leaf, self._leaf = self._leaf, None
        if leaf is not None and leaf.grad is not None and self._component.below is not None:
            self._component.below.down.pack({"s": leaf.grad}, (0,))

    def _from_above(self, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """The gradient of the output: of ones or, where messages are compressed, unpacked."""
        above = self._component.above
        if above is None or self._component.head is not None:
            return torch.ones(shape, dtype=dtype, device=device)
        packed = above.down.packed({"s": Shape(shape[1:], dtype)})["s"].empty(shape[0], device).zero_()
        return above.down.unpack({"s": packed}, training=True)["s"]

    def update(self) -> None:
        parameters = self._component.updated
        if self._component.clip_norm is not None and parameters:
            clip(parameters, self._component.clip_norm, gradient_norms(parameters))
        super().update()

    def _infer(self) -> None:
        incoming, below, above = self.incoming, self._component.below, self._component.above
        if below is not None:
            incoming = below.up.unpack(incoming, training=False)
        outgoing = self._component.f.run(incoming, 0)
        if above is not None:
            above.up.pack(stopped(outgoing), None)

    def route(self) -> None:
        """Nothing: the class scores pass unchanged."""
