"""One device stage: the actions F, B, U, E and D on the components it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch.nn import functional

from alray.nn.boundary import row_major
from alray.nn.component import BackpropagationComponent, Component, LocalComponent, Tensors


class Stage(ABC):
    """Contiguous components on one device. Steps count from 1; `index` of a component counts from 0 in the network."""

    components: list[Component]

    @abstractmethod
    def forward(self, incoming: Tensors, step: int) -> Tensors:
        """F of every component; returns what the next stage gets."""

    @abstractmethod
    def backward(self) -> dict[int, Tensors]:
        """B of every component; returns its losses by name, as stopped scalars."""

    @abstractmethod
    def update(self, lr: float, label_lr: float) -> None:
        """U of every component."""

    @abstractmethod
    def infer_up(self, s: torch.Tensor, step: int, batch: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """E: the encoders in evaluation mode. Returns s for the next stage and this stage's part of each route."""

    @abstractmethod
    def infer_down(self, routes: list[torch.Tensor]) -> list[torch.Tensor]:
        """D: what came from above, decoded through this stage (see `LocalLossStage`)."""

    def evaluation_mode(self, on: bool) -> None:
        for component in self.components:
            component.train(not on)


class LocalLossStage(Stage):
    """Components with local losses: nothing travels backwards."""

    def __init__(self, components: list[LocalComponent]) -> None:
        self.components = list(components)
        self._local = components

    def forward(self, incoming: Tensors, step: int) -> Tensors:
        for component in self._local:
            incoming = component.forward_step(incoming, step)
        return incoming

    def backward(self) -> dict[int, Tensors]:
        return {component.index: component.backward_step() for component in self._local}

    def update(self, lr: float, label_lr: float) -> None:
        for component in self._local:
            component.update_step(lr, label_lr)

    @torch.no_grad()
    def infer_up(self, s: torch.Tensor, step: int, batch: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The list holds, for each depth of this stage, its code decoded down to this stage's first component."""
        routes: list[torch.Tensor] = []
        for place, component in enumerate(self._local):
            s = component.infer(s, step, "evaluation", batch)
            t = component.code(s)
            for below in reversed(self._local[: place + 1]):
                t = below.decode(t)
            routes.append(t)
        return s, routes

    @torch.no_grad()
    def infer_down(self, routes: list[torch.Tensor]) -> list[torch.Tensor]:
        """Each route of a deeper component, one decoder after another, down to this stage's first component.

        Each depth is decoded by itself, in the batch's own shape: stacking them would change the bits of a matrix
        product, and with them, now and then, an accuracy.
        """
        decoded = []
        for t in routes:
            for component in reversed(self._local):
                t = component.decode(t)
            decoded.append(t)
        return decoded


class BackpropagationStage(Stage):
    """The backpropagation twin on one device: one loss at the end, its gradient back through every component."""

    def __init__(self, components: list[BackpropagationComponent], *, label_smoothing: float) -> None:
        self.components = list(components)
        self._links = components
        self._label_smoothing = label_smoothing
        self._pending: tuple[torch.Tensor, torch.Tensor] | None = None

    def forward(self, incoming: Tensors, step: int) -> Tensors:
        self._pending = (self._scores(incoming["s"], step), incoming["labels"])
        return {}

    def _scores(self, s: torch.Tensor, *purpose: str | int) -> torch.Tensor:
        for component in self._links:
            s = row_major(component.f.run(s, *purpose))
        head = self._links[-1].head
        assert head is not None, "the last component holds the head"
        scores: torch.Tensor = head(s)
        return scores

    def backward(self) -> dict[int, Tensors]:
        assert self._pending is not None, "B before F"
        scores, labels = self._pending
        self._pending = None
        for component in self._links:
            for optimizer in component.optimizers().values():
                optimizer.zero_grad()
        loss = functional.cross_entropy(scores, labels, label_smoothing=self._label_smoothing)
        loss.backward()
        return {self._links[-1].index: {"cross_entropy": loss.detach()}}

    def update(self, lr: float, label_lr: float) -> None:
        for component in self._links:
            for optimizer in component.optimizers().values():
                optimizer.step(lr)

    @torch.no_grad()
    def infer_up(self, s: torch.Tensor, step: int, batch: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The only route of backpropagation is the whole network."""
        return s, [self._scores(s, step, "evaluation", batch)]

    @torch.no_grad()
    def infer_down(self, routes: list[torch.Tensor]) -> list[torch.Tensor]:
        return routes


def make_stage(components: list[Component], *, label_smoothing: float = 0.0) -> Stage:
    """The stage for these components, by what they are."""
    local = [component for component in components if isinstance(component, LocalComponent)]
    if len(local) == len(components):
        return LocalLossStage(local)
    links = [component for component in components if isinstance(component, BackpropagationComponent)]
    assert len(links) == len(components), "components of one method only"
    return BackpropagationStage(links, label_smoothing=label_smoothing)
