"""A device stage: it executes its schedule's list of actions for one mini-batch after another, and knows no method.

Every action is one of four: take a message from an inbox, compute, send, or wait at the barrier. What is computed is
the business of `alray.runtime.stage.work`. Messages are taken by mini-batch, virtual stage and micro-batch, so their
order on an edge does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from alray.models.component import Component
from alray.models.encoder import Tensors
from alray.planning.schedules.actions import LABELS, Action
from alray.runtime.channel.edge import Waiting
from alray.runtime.channel.message import Message, MessageKind
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.disturbance import Slowdown
from alray.runtime.stage.ports import Ports
from alray.runtime.stage.work.work import LossValues, MicroBatch, Norms, Work, finite_values


@dataclass(frozen=True)
class MiniBatch:
    """One mini-batch, as a stage begins it."""

    step: int
    """Its number in the run, counted from 1."""
    lr: float
    """Learning rate of this mini-batch."""
    samples: int
    """Samples over all replicas."""
    incoming: Tensors = field(default_factory=dict)
    """The input of the first component, by name, on stage 0. Other stages get theirs in messages."""


class Stage:
    """Executes a list of actions."""

    def __init__(
        self,
        work: Work,
        actions: Sequence[Action] = (),
        *,
        micro_batches: int | None = None,
        slowdown: Slowdown | None = None,
    ) -> None:
        """
        Args:
            actions: those of mini-batch 0 on this stage, as `alray.planning.schedules.schedule.Actions` gives them;
                every other mini-batch has the same.
            micro_batches: of a mini-batch; None: it is not cut, and the numbers of messages mean samples and labels.
            slowdown: slows this replica on purpose; None for none.
        """
        self.work = work
        self.virtual_stages = len(work.runs)
        self._micro_batches = micro_batches
        self._slowdown = slowdown
        self._listed = _listed(actions, cut=micro_batches is not None)
        self._overlaps = any(action.batch < 0 for action in actions)
        self._shares_norms = work.clips_together and any(action.kind == "W" for action in actions)
        self._unfinished: MiniBatch | None = None
        self._under_way: dict[tuple[int, int], MicroBatch] = {}  # by virtual stage within this stage, and number
        self._began_s = 0.0  # `clock.by_samples_s` when the stage began to compute for the next update

    @property
    def components(self) -> Sequence[Component]:
        """All components of the stage, in the order of the network."""
        return self.work.components

    def mini_batch(self, batch: MiniBatch, ports: Ports, clock: Clock) -> Waiting[LossValues]:
        """Train on one mini-batch and return its losses.

        In a schedule without a flush it may be unfinished afterwards: the next mini-batch or `finish` completes it. The
        losses are there, for the stage that has them has no other stage to wait for.

        Yields where it has to wait (see `alray.runtime.channel.edge`). Raises NonFiniteLoss before any weight is
        updated.
        """
        before = self._unfinished
        if before is None:
            self._began_s = clock.by_samples_s
        self._unfinished = batch if self._overlaps else None
        return (yield from self._execute(batch, before, ports, clock))

    def finish(self, ports: Ports, clock: Clock) -> Waiting[None]:
        """Complete the mini-batch that is unfinished, if one is."""
        before, self._unfinished = self._unfinished, None
        if before is not None:
            yield from self._execute(None, before, ports, clock)

    def _execute(
        self, current: MiniBatch | None, before: MiniBatch | None, ports: Ports, clock: Clock
    ) -> Waiting[LossValues]:
        """Do the list's actions of a mini-batch and of the one before it; None: without these actions."""
        work, under_way = self.work, self._under_way
        losses: LossValues = {}
        given = [] if current is None else self._parts(current.incoming)
        samples = 0 if current is None else work.replication.own_samples(current.samples)
        for listed in self._listed:
            batch = before if listed.late else current
            if batch is None:
                continue
            step, action, own, key = batch.step, listed.action, listed.own, listed.key
            text = f"{listed.before}{step - 1}{listed.behind}"
            match action.kind:
                case "R" if action.down:
                    yield from _receive_gradients(under_way[key], action, ports, clock)
                case "R" if listed.labels:
                    yield from _receive_labels(under_way[key], ports, clock)
                case "R":
                    message = yield from _receive(action, listed, step, ports, clock)
                    under_way[key] = MicroBatch(step, message.tensors, batch.samples, *key, message=message)
                case "F":
                    if key not in under_way:
                        under_way[key] = MicroBatch(step, given[listed.part], batch.samples, *key)
                    with clock.measure("F", text, step):
                        (work.forward_alone if listed.again else work.forward)(under_way[key])
                case "C":
                    with clock.measure("F", text, step):
                        work.recompute(under_way[key])
                case "L":
                    yield from work.gather(under_way[key], clock, text)
                    with clock.measure("L", text, step):
                        work.label(under_way[key])
                case "B":
                    with clock.measure("B", text, step):
                        losses |= finite_values(work.backward(under_way[key]), step, samples)
                case "I":
                    with clock.measure("B", text, step):
                        losses |= finite_values(work.input_gradient(under_way[key]), step, samples)
                case "G":
                    with clock.measure("B", text, step):
                        work.weight_gradients(under_way[key])
                case "U":
                    components = work.components[work.runs[own]]
                    if not self._shares_norms:  # otherwise W has done it
                        yield from self._average_gradients(components, batch, clock, last=listed.ends)
                    with clock.measure("U", text, step):
                        if work.clips_together and not self._shares_norms:
                            assert ports.barrier is None, "a stage alone has the whole network"
                            work.take_norms(work.own_norms())
                        work.update(batch.lr, own, step=step)
                    if listed.ends:
                        self._began_s = clock.by_samples_s
                case "S" if action.down:
                    yield from _send_gradients(under_way[key], action, ports, clock)
                case "S":
                    yield from _send(under_way[key], action, listed, ports, clock)
                case "W" if self._shares_norms:
                    yield from self._average_gradients(work.components, batch, clock, last=True)
                    with clock.measure("U", f"{action.stage}U{step - 1}", step):
                        norms = work.own_norms()
                    yield from _share_norms(norms, work, ports, clock, step)
                case "W":
                    yield from _wait(listed.ends, ports, clock, step)
            if listed.last:
                message_of_part = under_way.pop(key).message
                inbox = ports.up_from[own]
                if message_of_part is not None and inbox is not None:
                    inbox.release(message_of_part)  # autograd and the sends are done with its buffer
        return losses

    def _parts(self, incoming: Tensors) -> list[Tensors]:
        """The micro-batches of a mini-batch."""
        count = self._micro_batches or 1
        if count == 1:
            return [incoming]
        for name, value in incoming.items():  # parts of other sizes would count as much as the others
            assert len(value) % count == 0, f"{count} micro-batches do not divide {len(value)} samples of `{name}`"
        parts = {name: value.chunk(count) for name, value in incoming.items()}
        return [{name: values[number] for name, values in parts.items()} for number in range(count)]

    def _average_gradients(
        self, components: Sequence[Component], batch: MiniBatch, clock: Clock, *, last: bool
    ) -> Waiting[None]:
        """Before U of these components: slow this replica where the spec says so, and wait for the gradients of all
        replicas.

        Args:
            last: whether these are the last components of the mini-batch on this stage, before whose U a replica is
                slowed.
        """
        if self._slowdown is not None and last:
            if self._slowdown.depends_on_computing(batch.step):
                clock.wait_for_gpu()  # a slower one would take longer for all of it
            computed_s = clock.by_samples_s - self._began_s
            with clock.measure("B", "disturbance", batch.step):
                yield from self._slowdown.wait(batch.step, computed_s)
        replication = self.work.replication
        if replication.averages_gradients:
            self.work.start_averaging(components, batch.samples)
            with clock.measure("all_reduce", f"all_reduce {batch.step - 1}", batch.step):
                yield from replication.finish(components)


class _Listed(NamedTuple):
    """An action of a stage's list, with what stands before and after the mini-batch's number in its text.

    Attributes:
        own: the virtual stage, of those that the stage holds.
        part: the micro-batch.
        again: whether C computes the same micro-batch again.
        labels: whether it receives the labels of a message in two parts.
        completes: whether it sends a whole message, or the second part of one.
        last: whether no other action of its micro-batch in its virtual stage comes after, barriers excepted.
        ends: whether it is the last of its kind in the list.
        late: whether it is an action of the mini-batch before.
    """

    action: Action
    before: str
    behind: str
    own: int
    part: int
    again: bool
    labels: bool
    completes: bool
    last: bool
    ends: bool
    late: bool

    @property
    def key(self) -> tuple[int, int]:
        return self.own, self.part


def _listed(actions: Sequence[Action], *, cut: bool) -> list[_Listed]:
    """
    Args:
        cut: whether mini-batches are cut into micro-batches, whose gradients travel.
    """
    virtual = sorted({action.stage for action in actions})
    keys = [(action.stage, action.number if cut else 0) for action in actions]
    after: dict[tuple[int, int], int] = {}
    # What a micro-batch of the mini-batch before still has to do comes after all that is done for it in this one.
    for place, action in sorted(enumerate(actions), key=lambda each: -each[1].batch):
        # An update is of a whole mini-batch; only where that is not cut, it still holds its micro-batch.
        if action.kind != "W" and not (cut and action.kind == "U"):
            after[keys[place]] = place
    again = {key for key, action in zip(keys, actions, strict=True) if action.kind == "C"}
    listed = []
    for place, action in enumerate(actions):
        before, behind = str(action._replace(batch=0)).split(f"{action.kind}0", 1)
        listed.append(
            _Listed(
                action,
                f"{before}{action.kind}",
                behind,
                virtual.index(action.stage),
                part=keys[place][1],
                again=keys[place] in again,
                labels=not cut and action.kind == "R" and action.number == LABELS,
                completes=cut or action.number == LABELS,
                last=after.get(keys[place]) == place,
                ends=all(other.kind != action.kind for other in actions[place + 1 :]),
                late=action.batch < 0,
            )
        )
    return listed


def _receive(action: Action, listed: _Listed, step: int, ports: Ports, clock: Clock) -> Waiting[Message]:
    """R: wait for the input of a micro-batch."""
    inbox = ports.up_from[listed.own]
    assert inbox is not None, "the first virtual stage receives nothing"
    with clock.measure("receive_wait", "receive_wait", step):
        return (yield from inbox.take(MessageKind.TRAIN, step, action.stage, listed.part))


def _receive_labels(part: MicroBatch, ports: Ports, clock: Clock) -> Waiting[None]:
    """R.1: wait for the labels that follow the samples."""
    inbox = ports.up_from[part.own]
    assert inbox is not None and part.message is not None, "the first virtual stage receives nothing"
    with clock.measure("receive_wait", "receive_wait", part.step):
        yield from inbox.complete(part.message)


def _receive_gradients(part: MicroBatch, action: Action, ports: Ports, clock: Clock) -> Waiting[None]:
    """R down: wait for the gradients of what was sent up.

    They are copied out of their buffer: the gradient of a weight may be a view of them.
    """
    inbox = ports.down_from[part.own]
    assert inbox is not None, "the last virtual stage receives no gradient"
    with clock.measure("receive_wait", "receive_wait", part.step):
        message = yield from inbox.take(MessageKind.GRADIENT, part.step, action.stage, part.number)
        part.from_above = {name: value.clone() for name, value in message.tensors.items()}
        inbox.release(message)


def _send(part: MicroBatch, action: Action, listed: _Listed, ports: Ports, clock: Clock) -> Waiting[None]:
    """S: what was computed goes up, so that the stage above can begin. S.1: the labels follow, which completes it."""
    outlet = ports.up_to[part.own]
    assert outlet is not None, "the last virtual stage sends nothing"
    message = Message(MessageKind.TRAIN, part.step, part.outgoing, virtual=action.stage + 1, micro_batch=listed.part)
    with clock.measure("send_wait", "send_wait", part.step):
        yield from outlet.send(message) if listed.completes else outlet.begin(message)
    if listed.completes:
        part.outgoing = {}  # its memory is free, but for what the backward pass needs


def _send_gradients(part: MicroBatch, action: Action, ports: Ports, clock: Clock) -> Waiting[None]:
    """S down: the gradients of what came in go down."""
    outlet = ports.down_to[part.own]
    assert outlet is not None, "the first virtual stage sends no gradient"
    message = Message(MessageKind.GRADIENT, part.step, part.to_below, virtual=action.stage - 1, micro_batch=part.number)
    with clock.measure("send_wait", "send_wait", part.step):
        yield from outlet.send(message)
    part.to_below = {}


def _share_norms(norms: Norms, work: Work, ports: Ports, clock: Clock, step: int) -> Waiting[None]:
    """W where gradients are clipped together: wait at the barrier until all stages have given the norms of theirs."""
    if ports.barrier is None:  # a stage alone has the gradients of all virtual stages
        work.take_norms(norms)
        return
    with clock.measure("barrier", "receive_wait", step):
        work.take_norms((yield from ports.barrier.share({index: each.cpu() for index, each in norms.items()})))


def _wait(ends: bool, ports: Ports, clock: Clock, step: int) -> Waiting[None]:
    """W: wait at the barrier.

    After its last action a stage waits for its next message anyway, and stage 0 is the first to continue: stage 0 alone
    has to wait.
    """
    assert ports.barrier is not None, "a stage alone waits for nobody"
    with clock.measure("barrier", "receive_wait", step):
        yield from ports.barrier.gather() if ends else ports.barrier.wait()
