"""Copies of a part of the last component, which go to all other components every S mini-batches.

    mini-batch   1 ... S    S + 1 ... 2S   2S + 1 ... 3S
    copy in use  after 0    after 0        after S

The copy made after mini-batch mS is in use from (m + 1)S + 1 on. So what a component computes is a function of the
number of the mini-batch alone, whenever a copy arrives. The last stage sends each copy over a separate edge to every
other stage, which receives it where it needs it: before it is in use, and before a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alray.models.component import Component, CopyingComponent
from alray.models.encoder import Tensors
from alray.runtime.channel.edge import Waiting
from alray.runtime.channel.message import Message, MessageKind
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.ports import Ports


@dataclass
class Copies:
    """One stage's part in them.

    Attributes:
        every: S, in mini-batches.
        last: whether the last component is among the stage's.
    """

    components: Sequence[Component]
    every: int
    last: bool
    ports: Ports
    clock: Clock

    def __post_init__(self) -> None:
        self._copying = [component for component in self.components if isinstance(component, CopyingComponent)]
        assert len(self._copying) == len(self.components), "components of one method only"
        self._under_way: int | None = None  # the mini-batch after which a copy was made that is not received yet

    def begin(self) -> Waiting[None]:
        """Before the first mini-batch of a run that begins: the initial weights are the first copy, used at once."""
        yield from self._make(0)
        yield from self.complete()
        self._renew()

    def after(self, step: int) -> Waiting[None]:
        """After mini-batch `step`: where a copy is due, use the one before it, and make it."""
        if step % self.every:
            return
        yield from self.complete()
        self._renew()
        yield from self._make(step)

    def complete(self) -> Waiting[None]:
        """Receive the copy that is under way, if one is: a checkpoint holds it."""
        if self._under_way is None:
            return
        below = self.ports.copies
        assert below is not None, "copies come from the last stage"
        with self.clock.measure("receive_wait", "receive_wait", self._under_way):
            message = yield from below.receive()
        assert (message.kind, message.step) == (MessageKind.COPY, self._under_way), "another message than the copy"
        self._take(message.tensors)
        below.release(message)
        self._under_way = None

    def _make(self, step: int) -> Waiting[None]:
        if not self.last:
            self._under_way = step
            return
        copy = self._copying[-1].original()
        self._take(copy)
        with self.clock.measure("send_wait", "send_wait", step):
            for end in self.ports.copies_below:
                yield from end.send(Message(MessageKind.COPY, step, copy))

    def _take(self, copy: Tensors) -> None:
        for component in self._copying:
            component.take_copy(copy)

    def _renew(self) -> None:
        for component in self._copying:
            component.renew_copy()
