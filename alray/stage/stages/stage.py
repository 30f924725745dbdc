"""The base class of all stages: components on one device that train on one mini-batch at a time, and run inference."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

import torch

from alray.channel.edge import Waiting
from alray.channel.message import Message, MessageKind
from alray.errors import ChannelError, NonFiniteLoss
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
    own: int = 0
    """The stage's virtual stage that it is in, of those that the stage holds, counted from 0."""


class Stage(ABC):
    """Components on one device, in the order of the network."""

    virtual_stages = 1
    """Separate runs of components that this stage holds."""
    routes_come_down = True
    """Whether each stage runs its label decoders on predictions that come down from the stages above. If not, the last
    virtual stage has the class scores."""

    def __init__(
        self, components: Sequence[Component], replication: Replication, slowdown: Slowdown | None = None
    ) -> None:
        """
        Args:
            slowdown: slows this replica on purpose; None for none.
        """
        self.components = list(components)
        self._replication = replication
        self._slowdown = slowdown

    @abstractmethod
    def mini_batch(self, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[LossValues]:
        """Train on one mini-batch and return its losses.

        Yields where it has to wait (see `alray.channel.edge`). Raises NonFiniteLoss before any weight is updated.
        """

    @abstractmethod
    def infer_up(self, incoming: Tensors, step: int, batch: int, own: int = 0) -> tuple[Tensors, list[torch.Tensor]]:
        """E: run the encoders of the stage's virtual stage `own` in evaluation mode.

        Returns what the next virtual stage gets, and one tensor for each route of inference that turns on this one.
        """

    @abstractmethod
    def infer_down(self, routes: list[torch.Tensor], own: int = 0) -> list[torch.Tensor]:
        """D: decode the routes that come from the virtual stage above down to the first component of virtual stage
        `own`."""

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

    def _average_gradients(
        self, components: Sequence[Component], batch: MiniBatch, clock: Clock, began_s: float, *, last: bool = True
    ) -> Waiting[None]:
        """Between B and U of these components: slow this replica where the spec says so, and wait for the gradients of
        all replicas.

        Args:
            began_s: `clock.by_samples_s` when the mini-batch began.
            last: whether these are the last components of the mini-batch on this stage, before whose U a replica is
                slowed.
        """
        if self._slowdown is not None and last:
            with clock.measure("B", "disturbance", batch.step):
                yield from self._slowdown.wait(batch.step, clock.by_samples_s - began_s)
        if not self._replication.averages_gradients:
            return
        if not self._averages_in_backward:
            for component in components:
                self._replication.start(component, batch.samples)
        with clock.measure("all_reduce", f"all_reduce {batch.step - 1}", batch.step):
            yield from self._replication.finish(components)


class ActionStage(Stage, ABC):
    """A stage that executes its schedule's list of actions, one after another."""

    def __init__(
        self,
        components: Sequence[Component],
        actions: Sequence[Action],
        replication: Replication,
        slowdown: Slowdown | None = None,
        *,
        runs: Sequence[int] = (),
    ) -> None:
        """
        Args:
            actions: those of mini-batch 0 on this stage; every other mini-batch has the same.
            runs: how many components each virtual stage has, in order; (): there is one.
        """
        super().__init__(components, replication, slowdown)
        self.virtual_stages = len(runs) or 1
        ends = [*accumulate(runs)] or [len(self.components)]
        self._runs = [slice(first, end) for first, end in zip([0, *ends[:-1]], ends, strict=True)]
        self._actions: list[_ListedAction] = []
        virtual = sorted({action.stage for action in actions})
        for place, action in enumerate(actions):
            before, behind = str(action).split(f"{action.kind}0", 1)
            own = virtual.index(action.stage)
            again = any(later.stage == action.stage and later.kind != "W" for later in actions[place + 1 :])
            self._actions.append(_ListedAction(action, f"{before}{action.kind}", behind, own, last=not again))

    @abstractmethod
    def forward(self, batch: MiniBatch, micro_batch: int) -> None:
        """F: run the encoders on `batch.incoming`, and put what the next stage gets into `batch.outgoing`."""

    def gather(self, batch: MiniBatch, clock: Clock, text: str) -> Waiting[None]:
        """Before L: exchange with the other replicas what losses need of all of them.

        Args:
            text: names L in traces.
        """
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
    def update(self, lr: float, label_lr: float, own: int = 0) -> None:
        """U: one step of the optimizers of every component of the stage's virtual stage `own`."""

    def mini_batch(self, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[LossValues]:
        """R of the first virtual stage is done: only by receiving the message did the loop learn what comes."""
        began_s, step = clock.by_samples_s, batch.step
        losses: LossValues = {}
        under_way = {0: batch}  # by virtual stage
        for number, (action, before, behind, own, last) in enumerate(self._actions, start=1):
            text = f"{before}{step - 1}{behind}"
            if action.kind == "R" and action.number == 0 and own > 0:
                under_way[own] = yield from _receive_round(own, batch, ports, clock)
            part = under_way[own] if action.kind != "W" else batch
            match action.kind:
                case "F":
                    with clock.measure("F", text, step):
                        self.forward(part, action.number)
                case "L":
                    yield from self.gather(part, clock, text)
                    with clock.measure("L", text, step):
                        self.label(part)
                case "B":
                    with clock.measure("B", text, step):
                        losses |= finite_values(self.backward(part), step, self._replication.own_samples(part.samples))
                case "U":
                    components = self.components[self._runs[own]]
                    ends = own == self.virtual_stages - 1
                    yield from self._average_gradients(components, part, clock, began_s, last=ends)
                    with clock.measure("U", text, step):
                        self.update(part.lr, part.label_lr, own)
                case "R" if action.number == 1:
                    yield from _receive_labels(part, ports, clock)
                case "S":
                    yield from _send(action, part, ports, clock)
                case "W":
                    yield from _wait(number == len(self._actions), ports, clock, step)
            if last and action.kind != "W":
                del under_way[own]
                if own < self.virtual_stages - 1:
                    part.outgoing = {}  # its memory is free for the next virtual stage
                if part.message is not None and ports.previous is not None:
                    ports.previous.release(part.message)  # autograd and the sends are done with its buffer
        return losses


class _ListedAction(NamedTuple):
    """An action of a stage's list, with what stands before and after the mini-batch's number in its text.

    Attributes:
        own: the virtual stage, of those that the stage holds.
        last: whether no computation or message of it comes after.
    """

    action: Action
    before: str
    behind: str
    own: int
    last: bool


def _receive_round(own: int, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[MiniBatch]:
    """R of a further virtual stage: the mini-batch comes round again, in the order in which it was sent on."""
    assert ports.previous is not None, "a stage alone receives nothing"
    with clock.measure("receive_wait", "receive_wait", batch.step):
        message = yield from ports.previous.receive()
    if message.kind is not MessageKind.TRAIN or message.step != batch.step:
        raise ChannelError(
            f"edge {ports.previous.edge}: {message.kind.name.lower()} {message.step} came where "
            f"mini-batch {batch.step} comes round",
            hint="report this as a bug of alray",
        )
    return replace(batch, incoming=message.tensors, message=message, outgoing={}, own=own)


def _receive_labels(batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[None]:
    """R.1: wait for the labels of a mini-batch."""
    assert ports.previous is not None and batch.message is not None, "the first virtual stage receives nothing"
    with clock.measure("receive_wait", "receive_wait", batch.step):
        yield from ports.previous.complete(batch.message)


def _send(action: Action, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[None]:
    """S: the samples go up, so that the stage above can begin. S.1: the labels follow, which completes the message."""
    assert ports.next is not None, "the last virtual stage sends nothing"
    message = Message(MessageKind.TRAIN, batch.step, batch.outgoing)
    with clock.measure("send_wait", "send_wait", batch.step):
        yield from ports.next.begin(message) if action.number == 0 else ports.next.send(message)


def _wait(last: bool, ports: Ports, clock: Clock, step: int) -> Waiting[None]:
    """W: wait at the barrier.

    After its last action a stage waits for its next message anyway, and stage 0 is the first to continue: stage 0 alone
    has to wait.
    """
    assert ports.barrier is not None, "a stage alone waits for nobody"
    with clock.measure("barrier", "receive_wait", step):
        yield from ports.barrier.gather() if last else ports.barrier.wait()


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
