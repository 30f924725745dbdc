"""One device stage: the actions F, B, U, E and D on the components it holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch.nn import functional

from alray.channel.wire import Wire
from alray.nn.component import Component, LocalComponent
from alray.nn.encoder import Tensors, in_default_strides
from alray.nn.methods.backpropagation import BackpropagationComponent
from alray.stage.clock import Clock
from alray.stage.gradients_ready import GradientsReady, Ready


class Stage(ABC):
    """Components on one device. Steps count from 1; `index` of a component counts from 0 in the network."""

    components: list[Component]

    @abstractmethod
    def update(self, lr: float, label_lr: float) -> None:
        """U of every component."""

    @abstractmethod
    def infer_up(self, incoming: Tensors, step: int, batch: int) -> tuple[Tensors, list[torch.Tensor]]:
        """E: the encoders in evaluation mode. Returns what the next stage gets and this stage's part of each route."""

    @abstractmethod
    def infer_down(self, routes: list[torch.Tensor]) -> list[torch.Tensor]:
        """D: what came from above, decoded through this stage (see `LocalLossStage`)."""

    def evaluation_mode(self, on: bool) -> None:
        for component in self.components:
            component.train(not on)

    def bytes_sent(self) -> dict[str, int]:
        """Bytes the stage has sent by itself, beside the loop's edges, by edge."""
        return {}


class SteppedStage(Stage, ABC):
    """A stage that does F and B as the schedule's list of actions says; its components are contiguous."""

    def tell_of_gradients(self, ready: Ready) -> None:
        """Have `ready` called within every B from here on, in an order that is the same on all replicas, with each
        component whose gradients are complete; not in one with a loss that is not finite.

        A stage whose gradients are averaged in B itself has nothing to tell.
        """

    @abstractmethod
    def encoder_forward(self, incoming: Tensors, step: int) -> Tensors:
        """F of every component; returns what the next stage gets of it."""

    def label_forward(self, incoming: Tensors) -> Tensors:
        """The first part of B, behind F, of components with local losses: these, and what the next stage gets of the
        labels, which it returns."""
        return {}

    def forward(self, incoming: Tensors, step: int) -> Tensors:
        """Both; returns all that the next stage gets."""
        passed_on = self.encoder_forward(incoming, step)
        return passed_on | self.label_forward(incoming)

    @abstractmethod
    def backward(self) -> dict[int, Tensors]:
        """The rest of B of every component; returns its losses by name, as stopped scalars."""


class ScheduledStage(Stage, ABC):
    """A stage whose mini-batch is one call: another library orders its computations and carries its messages."""

    virtual_stages: int
    """Runs of components held, apart from each other."""

    @abstractmethod
    def connect(self, wires: Mapping[int, Wire]) -> None:
        """Have messages go over these wires, by the number of the other stage, and not over the process group."""

    @abstractmethod
    def train(self, incoming: Tensors, step: int, clock: Clock) -> dict[int, Tensors]:
        """F and B of a mini-batch; returns the losses that are known here, by component and name.

        incoming: its labels, and its mask if it has one; on stage 0 its samples too.
        """

    @abstractmethod
    def infer_part(self, place: int, incoming: Tensors, step: int, batch: int) -> Tensors:
        """E of this stage's virtual stage `place`, counted from 0: what the next one gets, or the class scores as
        `s`."""


class LocalLossStage(SteppedStage):
    """Components with local losses: nothing travels backwards."""

    def __init__(self, components: list[LocalComponent]) -> None:
        self.components = list(components)
        self._local = components
        self._ready: Ready | None = None

    def tell_of_gradients(self, ready: Ready) -> None:
        self._ready = ready

    def encoder_forward(self, incoming: Tensors, step: int) -> Tensors:
        for component in self._local:
            incoming = component.encoder_step(incoming, step)
        return incoming

    def label_forward(self, incoming: Tensors) -> Tensors:
        for component in self._local:
            incoming = component.label_step(incoming)
        return incoming

    def backward(self) -> dict[int, Tensors]:
        losses = {}
        for component in self._local:
            losses[component.index] = component.backward_step()
            if self._ready is not None and all(map(torch.isfinite, losses[component.index].values())):
                self._ready(component)
        return losses

    def update(self, lr: float, label_lr: float) -> None:
        for component in self._local:
            component.update_step(lr, label_lr)

    @torch.no_grad()
    def infer_up(self, incoming: Tensors, step: int, batch: int) -> tuple[Tensors, list[torch.Tensor]]:
        """The list holds, for each route that turns here, its code decoded down to this stage's first component."""
        routes: list[torch.Tensor] = []
        for place, component in enumerate(self._local):
            incoming = component.infer(incoming, step, "evaluation", batch)
            if not component.ends_route:
                continue
            t = component.code(incoming)
            for below in reversed(self._local[: place + 1]):
                t = below.decode(t)
            routes.append(t)
        return incoming, routes

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


class BackpropagationStage(SteppedStage):
    """The backpropagation twin on one device: one loss at the end, its gradient back through every component.

    With micro-batches, F and B are done for each of them in turn, and the gradients add up to those of the mini-batch:
    what a pipeline computes, in one process.
    """

    def __init__(
        self, components: list[BackpropagationComponent], *, label_smoothing: float, micro_batches: int = 1
    ) -> None:
        self.components = list(components)
        self._links = components
        self._label_smoothing = label_smoothing
        self._micro_batches = micro_batches
        self._pending: torch.Tensor | None = None
        self._losses: list[torch.Tensor] = []
        self._gradients_ready: GradientsReady | None = None

    def tell_of_gradients(self, ready: Ready) -> None:
        self._gradients_ready = GradientsReady(self._links, ready)

    def encoder_forward(self, incoming: Tensors, step: int) -> Tensors:
        """F of the next micro-batch of `incoming`, the whole mini-batch."""
        number = len(self._losses)
        part = {name: value.chunk(self._micro_batches)[number] for name, value in incoming.items()}
        scores = class_scores(self._links, part, *draw_purpose(step, number, self._micro_batches))
        self._pending = functional.cross_entropy(scores, part["labels"], label_smoothing=self._label_smoothing)
        return {}

    def backward(self) -> dict[int, Tensors]:
        """B of the micro-batch last forwarded; with the last one, the mini-batch's loss."""
        assert self._pending is not None, "B before F"
        loss, self._pending = self._pending, None
        if not self._losses:
            zero_gradients(self._links)
        self._losses.append(loss.detach())
        ready = self._gradients_ready
        if ready is not None and self._micro_batches == 1 and torch.isfinite(loss):
            ready.begin()
        loss.backward()
        if len(self._losses) < self._micro_batches:
            return {}
        if self._micro_batches > 1:
            for component in self._links:
                for parameter in component.parameters():
                    if parameter.grad is not None:
                        parameter.grad.div_(self._micro_batches)
        if ready is not None and all(map(torch.isfinite, self._losses)):
            ready.finish()
        mean, self._losses = torch.stack(self._losses).mean(), []
        return {self._links[-1].index: {"cross_entropy": mean}}

    def update(self, lr: float, label_lr: float) -> None:
        step_optimizers(self._links, lr)

    @torch.no_grad()
    def infer_up(self, incoming: Tensors, step: int, batch: int) -> tuple[Tensors, list[torch.Tensor]]:
        """The only route of backpropagation is the whole network."""
        return incoming, [class_scores(self._links, incoming, step, "evaluation", batch)]

    @torch.no_grad()
    def infer_down(self, routes: list[torch.Tensor]) -> list[torch.Tensor]:
        return routes


def draw_purpose(step: int, micro_batch: int, micro_batches: int) -> tuple[str | int, ...]:
    """What random numbers of a micro-batch are drawn from, beside seed and component: the same in every pipeline, and
    where mini-batches are not cut the same as without a pipeline."""
    return (step,) if micro_batches == 1 else (step, "micro_batch", micro_batch)


def through(components: Sequence[BackpropagationComponent], incoming: Tensors, *purpose: str | int) -> Tensors:
    """What comes in through the encoders of these components, row-major behind each of them."""
    for component in components:
        incoming = in_default_strides(component.f.run(incoming, *purpose))
    return incoming


def class_scores(
    components: Sequence[BackpropagationComponent], incoming: Tensors, *purpose: str | int
) -> torch.Tensor:
    """Class scores `[N, classes]`, where the last of these components is the network's."""
    head = components[-1].head
    assert head is not None, "the last component holds the head"
    outgoing = through(components, incoming, *purpose)
    scores: torch.Tensor = head(outgoing["s"], outgoing.get("mask"))
    return scores


def zero_gradients(components: Sequence[BackpropagationComponent]) -> None:
    for component in components:
        for optimizer in component.optimizers().values():
            optimizer.zero_grad()


def step_optimizers(components: Sequence[BackpropagationComponent], lr: float) -> None:
    for component in components:
        for optimizer in component.optimizers().values():
            optimizer.step(lr)


def make_stage(components: list[Component], *, label_smoothing: float = 0.0, micro_batches: int = 1) -> SteppedStage:
    """The stage for these components, by what they are."""
    local = [component for component in components if isinstance(component, LocalComponent)]
    if len(local) == len(components):
        return LocalLossStage(local)
    return BackpropagationStage(
        backpropagation_components(components), label_smoothing=label_smoothing, micro_batches=micro_batches
    )


def backpropagation_components(components: Sequence[Component]) -> list[BackpropagationComponent]:
    """The same components, known to be of backpropagation."""
    links = [component for component in components if isinstance(component, BackpropagationComponent)]
    assert len(links) == len(components), "components of one method only"
    return links
