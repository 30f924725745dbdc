"""Backpropagation through all components of a network on one device."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import torch

from alray.nn.component import Component, backward_of, read
from alray.nn.encoder import Tensors, in_default_strides
from alray.nn.methods.backpropagation import BackpropagationComponent
from alray.randomness.generators import put_back
from alray.schedules.actions import Action
from alray.stage.disturbance import Slowdown
from alray.stage.replication import Replication
from alray.stage.stages.stage import ActionStage, MiniBatch, all_finite


class WholeNetworkStage(ActionStage, ABC):
    """All components of a network that is trained by backpropagation, on one device."""

    def __init__(
        self,
        components: Sequence[BackpropagationComponent],
        actions: Sequence[Action],
        replication: Replication,
        slowdown: Slowdown | None = None,
    ) -> None:
        super().__init__(components, actions, replication, slowdown)
        self._chain = list(components)
        self._pending: Losses | None = None  # between F and B

    def update(self, lr: float, label_lr: float, own: int = 0) -> None:
        step_optimizers(self._chain, lr)

    @torch.no_grad()
    def infer_up(self, incoming: Tensors, step: int, batch: int, own: int = 0) -> tuple[Tensors, list[torch.Tensor]]:
        """One route is the whole network; with deep supervision every depth is one."""
        return incoming, list(scores_of_depths(self._chain, incoming, step, "evaluation", batch).values())

    @torch.no_grad()
    def infer_down(self, routes: list[torch.Tensor], own: int = 0) -> list[torch.Tensor]:
        return routes


class BackpropagationStage(WholeNetworkStage):
    """One loss at the end of the network, whose gradient goes back through every component.

    With micro-batches, each goes forward and back in turn and the gradients add up to those of the mini-batch: what a
    pipeline computes, in one process.
    """

    def __init__(
        self,
        components: Sequence[BackpropagationComponent],
        actions: Sequence[Action],
        replication: Replication,
        slowdown: Slowdown | None = None,
        *,
        micro_batches: int = 1,
    ) -> None:
        super().__init__(components, actions, replication, slowdown)
        self._micro_batches = micro_batches
        self._losses: list[Losses] = []
        self._gradients_ready: GradientsReady | None = None
        self._samples = 0  # of the mini-batch under way
        if self._averages_in_backward:
            self._gradients_ready = GradientsReady(self._chain, self._start_averaging)

    def _start_averaging(self, component: Component) -> None:
        self._replication.start(component, self._samples)

    def forward(self, batch: MiniBatch, micro_batch: int = 0) -> None:
        part = {name: value.chunk(self._micro_batches)[micro_batch] for name, value in batch.incoming.items()}
        scores = scores_of_depths(self._chain, part, *draw_purpose(batch.step, micro_batch, self._micro_batches))
        self._pending = losses_of(self._chain, scores, part["labels"])

    def backward(self, batch: MiniBatch) -> Mapping[int, Tensors]:
        """B of the micro-batch that was last forwarded. The last one returns the mean loss of the mini-batch."""
        assert self._pending is not None, "B before F"
        losses, self._pending = self._pending, None
        loss = total_of(self._chain, losses)
        if not self._losses:
            zero_gradients(self._chain)
        self._losses.append({index: each.detach() for index, each in losses.items()})
        del losses
        self._samples = batch.samples
        ready = self._gradients_ready
        watched = ready is not None and self._micro_batches == 1 and all_finite([loss])
        if ready is not None and watched:
            ready.begin()
        with backward_of(self._chain):
            loss.backward()
        if len(self._losses) < self._micro_batches:
            return {}
        if self._micro_batches > 1:
            for component in self._chain:
                for parameter in component.parameters():
                    if parameter.grad is not None:
                        parameter.grad.div_(self._micro_batches)
        of_micro_batches, self._losses = self._losses, []
        values = [loss for losses in of_micro_batches for loss in losses.values()]
        if ready is not None and (watched or (self._micro_batches > 1 and all_finite(values))):
            ready.finish()
        return {
            index: {self._chain[-1].loss_name: torch.stack([losses[index] for losses in of_micro_batches]).mean()}
            for index in of_micro_batches[0]
        }


class GradientsReady:
    """Calls back with each component as soon as a backward pass has completed its gradients, the last one first.

    The order is the same on every replica, even where a parameter has a gradient on one replica and none on another: a
    component waits for all above it, and components that miss a gradient come at the end.
    """

    def __init__(self, components: Sequence[Component], ready: Callable[[Component], None]) -> None:
        """Watch the components' parameters from here on."""
        self._components = list(components)
        self._ready = ready
        self._trainable = [sum(each.requires_grad for each in component.parameters()) for component in components]
        self._missing: list[int] = []  # gradients still to come, by component; empty outside a watched pass
        self._called = 0
        for index, component in enumerate(components):
            for parameter in component.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(partial(self._came, index))

    def begin(self) -> None:
        """Call before a backward pass that completes the gradients of a mini-batch."""
        self._missing = list(self._trainable)
        self._call(complete=True)  # components without parameters, where no other is above them

    def finish(self) -> None:
        """Call after it: the components that are left are ready. After a pass that was not watched, all are."""
        self._call(complete=False)
        self._missing = []
        self._called = 0

    def _came(self, index: int, _: torch.Tensor) -> None:
        if self._missing:
            self._missing[index] -= 1
            self._call(complete=True)

    def _call(self, *, complete: bool) -> None:
        while self._called < len(self._components):
            index = len(self._components) - 1 - self._called
            if complete and self._missing[index] > 0:
                return
            self._called += 1
            self._ready(self._components[index])


def draw_purpose(step: int, micro_batch: int, micro_batches: int) -> tuple[str | int, ...]:
    """Return the key from which a micro-batch's random numbers are drawn, in addition to the seed and the component.

    It is the same in every pipeline, and without micro-batches the same as on one device.
    """
    return (step,) if micro_batches == 1 else (step, "micro_batch", micro_batch)


def through(
    components: Sequence[BackpropagationComponent], incoming: Tensors, *purpose: str | int, recompute: bool = False
) -> Tensors:
    """Run the encoders of these components, with outputs in default strides.

    Args:
        recompute: whether a component keeps its input only, and runs once more before its backward pass.
    """
    for component in components:
        incoming = _recomputed(component, incoming, *purpose) if recompute else _forward(component, incoming, *purpose)
    return incoming


def _forward(component: Component, incoming: Tensors, *purpose: str | int) -> Tensors:
    return in_default_strides(component.f.run(incoming, *purpose))


def _recomputed(component: Component, incoming: Tensors, *purpose: str | int) -> Tensors:
    """Activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174).

    The second forward draws what the first one drew, because random numbers are drawn from the purpose.
    """
    from torch.utils.checkpoint import checkpoint  # few runs need it, and it takes time

    outgoing: Tensors = checkpoint(
        partial(_forward, component),
        incoming,
        *purpose,
        use_reentrant=False,
        preserve_rng_state=False,
        early_stop=False,  # it is an error raised in the forward, which a user's code would be blamed for
        context_fn=lambda: (nullcontext(), _leaving_no_trace(component, incoming["s"].device)),
    )
    return outgoing


@contextmanager
def _leaving_no_trace(component: Component, device: torch.device) -> Iterator[None]:
    """Around a second forward pass: buffers, such as those of batch normalisation, and generators end as they were."""
    before = [(buffer.data, buffer.clone()) for buffer in component.buffers()]
    with put_back(device):
        yield
        for buffer, value in before:
            buffer.copy_(value)  # without telling autograd, which needs none of these values


def class_scores(
    components: Sequence[BackpropagationComponent], incoming: Tensors, *purpose: str | int, recompute: bool = False
) -> torch.Tensor:
    """Class scores `[N, classes]`. The last of these components is the network's last.

    Args:
        recompute: see `through`.
    """
    head = components[-1].head
    assert head is not None, "the last component holds the head"
    outgoing = through(components, incoming, *purpose, recompute=recompute)
    scores: torch.Tensor = head(outgoing["s"], outgoing.get("mask"))
    return scores


Losses = dict[int, torch.Tensor]
"""The losses of the components that have one, by their index: scalars."""


def scores_of_depths(
    components: Sequence[BackpropagationComponent], incoming: Tensors, *purpose: str | int
) -> dict[int, torch.Tensor]:
    """Class scores `[N, classes]` of each component that has a head, by its index, the first one first."""
    scores = {}
    for component in components:
        incoming = _forward(component, incoming, *purpose)
        if component.head is not None:
            scores[component.index] = read(component.head, incoming)
    return scores


def losses_of(
    components: Sequence[BackpropagationComponent], scores: Mapping[int, torch.Tensor], labels: torch.Tensor
) -> Losses:
    """The loss of each component that has scores.

    Args:
        labels: class numbers `[N]`.
    """
    return {each.index: each.loss(scores[each.index], labels) for each in components if each.index in scores}


def total_of(components: Sequence[BackpropagationComponent], losses: Losses) -> torch.Tensor:
    """The loss of the network: that of the last component, and those of the others by their weights."""
    total = losses[components[-1].index]
    for component in components[:-1]:
        if component.index in losses:
            total = total + component.loss_weight * losses[component.index]
    return total


def zero_gradients(components: Sequence[Component]) -> None:
    for component in components:
        for optimizer in component.optimizers().values():
            optimizer.zero_grad()


def step_optimizers(components: Sequence[Component], lr: float) -> None:
    for component in components:
        for optimizer in component.optimizers().values():
            optimizer.step(lr)
