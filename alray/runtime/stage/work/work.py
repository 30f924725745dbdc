"""The interface of what computes on a stage. The stage (`alray.runtime.stage.stage`) calls it, action by action."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import nn

from alray.core.errors import NonFiniteLoss
from alray.models.component import Component
from alray.models.encoder import Tensors
from alray.runtime.channel.edge import Waiting
from alray.runtime.channel.message import Message
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.replication import Replication

ComponentLosses = Mapping[int, Tensors]
"""Losses that are complete: component (counted from 0) -> name of the loss -> scalar."""
LossValues = dict[int, dict[str, float]]
"""Losses of one mini-batch: component (counted from 0) -> name of the loss -> value."""
Norms = dict[int, torch.Tensor]
"""The norms of gradients: component -> `[parameters]`, with 0 for a parameter that a mini-batch gives none."""


@dataclass
class MicroBatch:
    """One micro-batch on its way through one virtual stage. Where mini-batches are not cut, it is a whole one."""

    step: int
    """The number of its mini-batch in the run, counted from 1."""
    incoming: Tensors
    """The input of the virtual stage, by name. Labels may be missing until `R.1` has received them."""
    samples: int
    """Samples of the mini-batch, over all replicas."""
    own: int = 0
    """The virtual stage, of those that the stage holds, counted from 0."""
    number: int = 0
    """Its number in the mini-batch, counted from 0."""
    outgoing: Tensors = field(default_factory=dict)
    """What is computed so far of the input of the next virtual stage, by name."""
    from_above: Tensors = field(default_factory=dict)
    """The gradients of `outgoing`, by name, where gradients travel."""
    to_below: Tensors = field(default_factory=dict)
    """The gradients of `incoming`, by name, where gradients travel."""
    message: Message | None = None
    """The message with `incoming`; None where it came from the data."""


@dataclass(frozen=True)
class _Held:
    """The buffers of a module as they are before an evaluation, and their values. Some modules change theirs in
    evaluation, too: the observers of quantisation-aware training, or a counter."""

    module: nn.Module
    buffers: dict[str, torch.Tensor | None]
    values: list[tuple[torch.Tensor, torch.Tensor]]  # each buffer with a copy

    @classmethod
    def of(cls, module: nn.Module) -> _Held:
        buffers = dict(module._buffers)
        return cls(module, buffers, [(each, each.detach().clone()) for each in buffers.values() if each is not None])

    @property
    def moved(self) -> bool:
        """Whether the module has others now. torch's fused observers do not count their changes in `_version`."""
        now = self.module._buffers
        return any(now.get(name) is not each for name, each in self.buffers.items()) or not all(
            torch.equal(buffer, value) for buffer, value in self.values
        )

    @torch.no_grad()
    def put_back(self) -> None:
        for buffer, value in self.values:
            buffer.resize_(value.shape).copy_(value)  # an observer may have resized it
        self.module._buffers.update(self.buffers)


@dataclass(eq=False)
class Work(ABC):
    """The components of one stage and their computations, in the order of the network.

    Attributes:
        replication: the stage among the same stage of all replicas.
        lengths: how many components each virtual stage has, in order; (): there is one.
        averages_early: whether gradients of replicas may be averaged as soon as they are complete.
    """

    components: Sequence[Component]
    replication: Replication = field(default_factory=Replication)
    lengths: Sequence[int] = ()
    averages_early: bool = True

    def __post_init__(self) -> None:
        ends = [*accumulate(self.lengths)] or [len(self.components)]
        self.runs = [slice(first, end) for first, end in zip([0, *ends[:-1]], ends, strict=True)]
        self.averages_early = self.averages_early and self.replication.averages_gradients
        self._held: list[_Held] = []  # the buffers of all modules, while an evaluation goes on
        self._moving: dict[int, list[_Held]] = {}  # of those that change them in evaluation, by virtual stage

    @abstractmethod
    def forward(self, batch: MicroBatch) -> None:
        """F: run the encoders on `batch.incoming`, and put what the next virtual stage gets into `batch.outgoing`."""

    def forward_alone(self, batch: MicroBatch) -> None:
        """F that C follows: as `forward`, but it keeps nothing for a backward."""
        raise AssertionError("only a chain of backpropagation has an action C")

    def recompute(self, batch: MicroBatch) -> None:
        """C: run the encoders on `batch.incoming` once more, and keep what the backward needs."""
        raise AssertionError("only a chain of backpropagation has an action C")

    def gather(self, batch: MicroBatch, clock: Clock, text: str) -> Waiting[None]:
        """Before L: exchange with the other replicas what losses need of all of them.

        Args:
            text: names L in traces.
        """
        yield from ()

    def label(self, batch: MicroBatch) -> None:
        """L: run the label chain and the local losses, and add the labels to `batch.outgoing`.

        The lists of pipelines have no L.
        """
        raise AssertionError("only components with local losses have an action L")

    @abstractmethod
    def backward(self, batch: MicroBatch) -> ComponentLosses:
        """B: compute gradients. Returns the losses that are complete now."""

    def input_gradient(self, batch: MicroBatch) -> ComponentLosses:
        """I: the part of B that the virtual stage below waits for. Returns the losses that are complete now."""
        raise AssertionError("only a chain of backpropagation has an action I")

    def weight_gradients(self, batch: MicroBatch) -> None:
        """G: the rest of B, after I."""
        raise AssertionError("only a chain of backpropagation has an action G")

    def start_averaging(self, components: Sequence[Component], samples: int) -> None:
        """Before U: begin to average the gradients of components over all replicas, unless that has started already.

        Args:
            samples: of the mini-batch, over all replicas.
        """
        if self.replication.averages_gradients and not self.averages_early:
            for component in components:
                self.replication.start(component, samples)

    @property
    def clips_together(self) -> bool:
        """Whether an update needs the norms of the gradients of the whole network."""
        return False

    def own_norms(self) -> Norms:
        """Before the first U: those of this stage, with replicas of the averages."""
        raise AssertionError("only a chain of backpropagation clips all gradients together")

    def take_norms(self, norms: Norms) -> None:
        """Before the first U: those of all stages."""
        raise AssertionError("only a chain of backpropagation clips all gradients together")

    @abstractmethod
    def update(self, lr: float, own: int = 0, *, step: int) -> None:
        """U: one step of the optimizers of every component of virtual stage `own`, whose gradients are then forgotten.

        Args:
            step: of the mini-batch, from 1.
        """

    def infer_up(self, incoming: Tensors, step: int, batch: int, own: int = 0) -> tuple[Tensors, list[torch.Tensor]]:
        """E: run the encoders of virtual stage `own` in evaluation mode.

        Returns what the next virtual stage gets, and one tensor for each route of inference that turns on this one.
        Buffers that the batch has changed are put back, so that neither training nor another batch depends on it.
        """
        found = self._infer_up(incoming, step, batch, own)
        if own not in self._moving:  # a module changes the same buffers in every batch
            self._moving[own] = [each for each in self._held if each.moved]
        for held in self._moving[own]:
            held.put_back()
        return found

    @abstractmethod
    def _infer_up(self, incoming: Tensors, step: int, batch: int, own: int) -> tuple[Tensors, list[torch.Tensor]]:
        """E, without regard to buffers."""

    @abstractmethod
    def infer_down(self, routes: list[torch.Tensor], own: int = 0) -> list[torch.Tensor]:
        """D: decode the routes that come from the virtual stage above down to the first component of virtual stage
        `own`."""

    def evaluation_mode(self, on: bool) -> None:
        """Switch every module to evaluation mode, or back to training mode with the buffers of before."""
        for held in self._held:
            if held.moved:
                held.put_back()
        for component in self.components:
            component.train(not on)
        modules = [each for component in self.components for each in component.modules() if each._buffers]
        self._held = [_Held.of(each) for each in modules] if on else []
        self._moving = {}


def finite_values(
    losses: Mapping[int, Mapping[str, torch.Tensor]], step: int, samples: int | None = None
) -> LossValues:
    """Losses as numbers. Raises NonFiniteLoss where one is infinite or not a number.

    They are read all at once: each reading waits until a GPU has done all that it was given.

    Args:
        samples: of the mini-batch, on this replica. Of one sample a loss that compares samples has no value.
    """
    numbers = iter(_stacked([loss for named in losses.values() for loss in named.values()]).tolist())
    values = {index: {name: next(numbers) for name in named} for index, named in losses.items()}
    for index, named in values.items():
        for name, value in named.items():
            if not math.isfinite(value):
                if samples == 1:
                    raise NonFiniteLoss(
                        f"component {index}: the {name} loss is {value} at mini-batch {step}, of one sample",
                        key="data.batch_size",
                        hint="a loss that compares samples needs two: raise data.batch_size or drop the last one",
                    )
                raise NonFiniteLoss(
                    f"component {index}: the {name} loss is {value} at mini-batch {step}",
                    hint="lower optimizer.lr or set optimizer.clip_norm; checkpoints from before it are kept",
                )
    return values


def all_finite(losses: Iterable[torch.Tensor]) -> bool:
    """Whether none of the losses, scalars, is infinite or not a number; read all at once."""
    return bool(_stacked(losses).isfinite().all())


def _stacked(losses: Iterable[torch.Tensor]) -> torch.Tensor:
    """The scalars as one flat tensor."""
    held = [loss.reshape(()) for loss in losses]
    return torch.stack(held) if held else torch.empty(0)
