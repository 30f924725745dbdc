"""A stage's part of an evaluation: batches go up through the stages, and class scores come back to stage 0.

Operations that may have to wait are generators (see `alray.channel.edge`). Gradients are switched off inside each
action only, because another stage of the same process may train between two actions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from alray.channel.edge import Waiting
from alray.channel.message import Message, MessageKind
from alray.data.batches import Batch
from alray.nn.encoder import Tensors
from alray.schedules.evaluation import evaluation_actions
from alray.stage.clock import Clock
from alray.stage.evaluation import Evaluator
from alray.stage.ports import Ports
from alray.stage.stages.stage import RoundStage, Stage


@dataclass(frozen=True)
class Inference:
    """One evaluation on stage `number` of `stages`, of the weights after `step` mini-batches.

    evaluator: gives the batches and takes the class scores; on stage 0 alone. inputs: a batch as the first component
    takes it, without labels. count: number of evaluation batches.
    """

    number: int
    stages: int
    ports: Ports
    clock: Clock
    evaluator: Evaluator | None
    inputs: Callable[[Batch], Tensors]
    step: int
    count: int

    def run(self, stage: Stage) -> Waiting[None]:
        """All batches, in evaluation mode."""
        stage.evaluation_mode(True)
        if isinstance(stage, RoundStage) and stage.virtual_stages > 1:
            yield from self._in_rounds(stage)
        else:
            yield from self._by_actions(stage)
        stage.evaluation_mode(False)

    def _by_actions(self, stage: Stage) -> Waiting[None]:
        """One stage holds one run of components: follow the list of actions E and D."""
        ports, clock = self.ports, self.clock
        source = iter(self.evaluator) if self.evaluator is not None else None
        received: Message | None = None
        passed_up: Tensors = {}
        routes: dict[int, list[torch.Tensor]] = {}
        for action in evaluation_actions(self.number, self.stages, self.count):
            batch, text = action.batch, str(action)
            if action.kind == "R":
                end = ports.from_above if action.down else ports.from_below
                assert end is not None
                with clock.measure("receive_wait", "receive_wait", self.step):
                    received = yield from end.receive()
            elif action.kind == "E":
                with clock.measure("E", text, self.step):
                    if source is not None:
                        incoming = self.inputs(next(source))
                    else:
                        assert received is not None
                        incoming = received.tensors
                    passed_up, routes[batch] = stage.infer_up(incoming, self.step, batch)
                    del incoming
                if received is not None and ports.from_below is not None and ports.to_above is None:
                    ports.from_below.release(received)
                    received = None
            elif action.kind == "D":
                with clock.measure("D", text, self.step):
                    if received is not None and ports.from_above is not None:
                        above = [route.clone() for route in received.tensors["route"].unbind(0)]
                        ports.from_above.release(received)
                        received = None
                        routes[batch] += stage.infer_down(above)
                    if self.evaluator is not None:
                        self.evaluator.take(batch, routes.pop(batch))
            elif action.down:
                assert ports.to_below is not None
                message = Message(MessageKind.ROUTE, batch, {"route": torch.stack(routes.pop(batch))})
                with clock.measure("send_wait", "send_wait", self.step):
                    yield from ports.to_below.send(message)
            else:
                assert ports.to_above is not None
                with clock.measure("send_wait", "send_wait", self.step):
                    yield from ports.to_above.send(Message(MessageKind.EVALUATE, batch, passed_up))
                if received is not None and ports.from_below is not None:
                    ports.from_below.release(received)
                    received = None

    def _in_rounds(self, stage: RoundStage) -> Waiting[None]:
        """With virtual stages: as many batches as there are stages go round the ring of stages together.

        Each stage runs its first virtual stage for all of them, then its next one, and so on. After the last one, the
        scores go to stage 0. No more batches go round at once than there are stages, and every edge holds one, so
        that no stage can wait for room that never comes.
        """
        ports = self.ports
        first, last = self.number == 0, self.number == self.stages - 1
        source = iter(self.evaluator) if self.evaluator is not None else None
        for begin in range(0, self.count, self.stages):
            together = range(begin, min(begin + self.stages, self.count))
            for index in range(stage.virtual_stages):
                for batch in together:
                    received = None
                    if source is not None and index == 0:
                        incoming = self.inputs(next(source))
                    else:
                        received = yield from self._receive()
                        incoming = received.tensors
                    with self.clock.measure("E", f"{index * self.stages + self.number}E{batch}", self.step):
                        outgoing = stage.infer_part(index, incoming, self.step, batch)
                    end = ports.to_first if last else ports.to_above
                    assert end is not None
                    with self.clock.measure("send_wait", "send_wait", self.step):
                        yield from end.send(Message(MessageKind.EVALUATE, batch, outgoing))
                    del incoming, outgoing
                    self._release(received)
            if first:
                assert self.evaluator is not None
                for batch in together:
                    received = yield from self._receive()
                    self.evaluator.take(batch, [received.tensors["s"].clone()])
                    self._release(received)

    def _receive(self) -> Waiting[Message]:
        end = self.ports.from_below or self.ports.from_last
        assert end is not None
        with self.clock.measure("receive_wait", "receive_wait", self.step):
            return (yield from end.receive())

    def _release(self, received: Message | None) -> None:
        end = self.ports.from_below or self.ports.from_last
        if received is not None and end is not None:
            end.release(received)
