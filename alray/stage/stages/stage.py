"""The base class of all stages: components on one device that train on one mini-batch at a time, and run inference."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from alray.channel.edge import Waiting
from alray.channel.message import Message, MessageKind
from alray.errors import NonFiniteLoss
from alray.nn.component import Component
from alray.nn.encoder import Tensors
from alray.schedules.actions import Action
from alray.stage.clock import Clock
from alray.stage.disturbance import Slowdown
from alray.stage.ports import Ports
from alray.stage.replication import Replication

LossValues = dict[int, dict[str, float]]
"""Losses of one mini-batch: component (counted from 0) -> name of the loss -> value."""


@dataclass
class MiniBatch:
    """One mini-batch on its way through one stage."""

    step: int
    """Its number in the run, counted from 1."""
    incoming: Tensors
    """The input of the stage, by name. Labels may be missing until `R.1` has received them."""
    lr: float
    label_lr: float
    """Learning rates of this mini-batch: of the encoders, and of the label chain."""
    samples: int
    """Samples over all replicas."""
    message: Message | None = None
    """The message that brought `incoming`. None on stage 0, which reads the data itself."""
    outgoing: Tensors = field(default_factory=dict)
    """The input of the next stage, by name, as far as it is computed."""


class Stage(ABC):
    """Components on one device, in the order of the network."""

    virtual_stages = 1
    """Separate runs of components that this stage holds."""

    def __init__(
        self, components: Sequence[Component], replication: Replication, slowdown: Slowdown | None = None
    ) -> None:
        """slowdown: slows this replica on purpose; None for none."""
        self.components = list(components)
        self._replication = replication
        self._slowdown = slowdown

    @abstractmethod
    def mini_batch(self, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[LossValues]:
        """Train on one mini-batch and return its losses.

        Yields where it has to wait (see `alray.channel.edge`). Raises NonFiniteLoss before any weight is updated.
        """

    @abstractmethod
    def infer_up(self, incoming: Tensors, step: int, batch: int) -> tuple[Tensors, list[torch.Tensor]]:
        """E: run the encoders in evaluation mode.

        Returns what the next stage gets, and one tensor for each route of inference that turns on this stage.
        """

    @abstractmethod
    def infer_down(self, routes: list[torch.Tensor]) -> list[torch.Tensor]:
        """D: decode the routes that come from the stage above down to this stage's first component."""

    def evaluation_mode(self, on: bool) -> None:
        """Switch every module to evaluation mode, or back to training mode."""
        for component in self.components:
            component.train(not on)

    def bytes_sent(self) -> dict[str, int]:
        """Bytes that the stage sent by itself, in addition to those over its ports, by edge."""
        return {}

    @property
    def _averages_in_backward(self) -> bool:
        """Whether gradients are averaged while the backward pass continues. A slowed replica averages after it."""
        return self._replication.averages_gradients and self._slowdown is None

    def _average_gradients(self, batch: MiniBatch, clock: Clock, began_s: float) -> Waiting[None]:
        """Between B and U: slow this replica where the spec says so, and wait for the gradients of all replicas.

        began_s: `clock.by_samples_s` when the mini-batch began.
        """
        if self._slowdown is not None:
            with clock.measure("B", "disturbance", batch.step):
                yield from self._slowdown.wait(batch.step, clock.by_samples_s - began_s)
        if not self._replication.averages_gradients:
            return
        if not self._averages_in_backward:
            for component in self.components:
                self._replication.start(component, batch.samples)
        with clock.measure("all_reduce", f"all_reduce {batch.step - 1}", batch.step):
            yield from self._replication.finish()


class ActionStage(Stage, ABC):
    """A stage that executes its schedule's list of actions, one after another."""

    def __init__(
        self,
        components: Sequence[Component],
        actions: Sequence[Action],
        replication: Replication,
        slowdown: Slowdown | None = None,
    ) -> None:
        """actions: those of mini-batch 0 on this stage; every other mini-batch has the same."""
        super().__init__(components, replication, slowdown)
        self._actions: list[tuple[Action, str, str]] = []  # with what stands before and behind the mini-batch's number
        for action in actions:
            before, behind = str(action).split(f"{action.kind}0", 1)
            self._actions.append((action, f"{before}{action.kind}", behind))

    @abstractmethod
    def forward(self, batch: MiniBatch, micro_batch: int) -> None:
        """F: run the encoders on `batch.incoming`, and put what the next stage gets into `batch.outgoing`."""

    def gather(self, batch: MiniBatch, clock: Clock, text: str) -> Waiting[None]:
        """Before L: exchange with the other replicas what losses need of all of them. text: names L in traces."""
        yield from ()

    def label(self, batch: MiniBatch) -> None:
        """L: run the label chain and the local losses, and add the labels to `batch.outgoing`.

        The lists of stages without local losses have no L.
        """
        raise AssertionError("only stages with local losses have an action L")

    @abstractmethod
    def backward(self, batch: MiniBatch) -> Mapping[int, Tensors]:
        """B: compute gradients. Returns the losses that are complete now, by component and name, as scalars."""

    @abstractmethod
    def update(self, lr: float, label_lr: float) -> None:
        """U: one step of the optimizers of every component."""

    def mini_batch(self, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[LossValues]:
        began_s, step = clock.by_samples_s, batch.step
        losses: LossValues = {}
        for number, (action, before, behind) in enumerate(self._actions, start=1):
            text = f"{before}{step - 1}{behind}"
            match action.kind:
                case "F":
                    with clock.measure("F", text, step):
                        self.forward(batch, action.part)
                case "L":
                    yield from self.gather(batch, clock, text)
                    with clock.measure("L", text, step):
                        self.label(batch)
                case "B":
                    with clock.measure("B", text, step):
                        losses |= finite_values(self.backward(batch), step)
                case "U":
                    yield from self._average_gradients(batch, clock, began_s)
                    with clock.measure("U", text, step):
                        self.update(batch.lr, batch.label_lr)
                case "R":
                    yield from _receive(action, batch, ports, clock)
                case "S":
                    yield from _send(action, batch, ports, clock)
                case "W":
                    yield from _wait(number == len(self._actions), ports, clock, step)
        if batch.message is not None and ports.from_below is not None:
            ports.from_below.release(batch.message)  # autograd and the sends are done with its buffer
        return losses


def _receive(action: Action, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[None]:
    """R.1: wait for the labels of a mini-batch. R is done: only by receiving it did the loop learn what comes."""
    if action.part == 1:
        assert ports.from_below is not None and batch.message is not None, "stage 0 receives nothing"
        with clock.measure("receive_wait", "receive_wait", batch.step):
            yield from ports.from_below.complete(batch.message)


def _send(action: Action, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[None]:
    """S: the samples go up, so that the stage above can begin. S.1: the labels follow, which completes the message."""
    assert ports.to_above is not None, "the last stage sends nothing"
    message = Message(MessageKind.TRAIN, batch.step, batch.outgoing)
    with clock.measure("send_wait", "send_wait", batch.step):
        yield from ports.to_above.begin(message) if action.part == 0 else ports.to_above.send(message)


def _wait(last: bool, ports: Ports, clock: Clock, step: int) -> Waiting[None]:
    """W: wait at the barrier.

    After its last action a stage waits for its next message anyway, and stage 0 is the first to continue: stage 0 alone
    has to wait.
    """
    assert ports.barrier is not None, "a stage alone waits for nobody"
    with clock.measure("barrier", "receive_wait", step):
        yield from ports.barrier.gather() if last else ports.barrier.wait()


class RoundStage(Stage, ABC):
    """A stage that may hold several virtual stages, so that inference goes round all stages more than once."""

    @abstractmethod
    def infer_part(self, index: int, incoming: Tensors, step: int, batch: int) -> Tensors:
        """E of this stage's virtual stage `index`, counted from 0.

        Returns the input of the next virtual stage; the last one returns the class scores `[N, classes]` as `s`.
        """


def finite_values(losses: Mapping[int, Mapping[str, torch.Tensor]], step: int) -> LossValues:
    """Losses as numbers. Raises NonFiniteLoss where one is infinite or not a number.

    They are read all at once: each reading waits until a GPU has done all that it was given.
    """
    numbers = iter(_stacked([loss for named in losses.values() for loss in named.values()]).tolist())
    values = {index: {name: next(numbers) for name in named} for index, named in losses.items()}
    for index, named in values.items():
        for name, value in named.items():
            if not math.isfinite(value):
                raise NonFiniteLoss(
                    f"component {index}: the {name} loss is {value} at mini-batch {step}",
                    hint="lower optimizer.lr or set optimizer.clip_norm; the last checkpoint before it is kept",
                )
    return values


def all_finite(losses: Iterable[torch.Tensor]) -> bool:
    """Whether none of the losses, scalars, is infinite or not a number; read all at once."""
    return bool(_stacked(losses).isfinite().all())


def _stacked(losses: Iterable[torch.Tensor]) -> torch.Tensor:
    """The scalars as one flat tensor."""
    held = [loss.reshape(()) for loss in losses]
    return torch.stack(held) if held else torch.empty(0)
