"""A stage's part of an evaluation: batches go up through the stages, and class scores come back to stage 0.

Operations that may have to wait are generators (see `alray.channel.edge`). Gradients are switched off inside each
action only, because another stage of the same process may train between two actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from alray.channel.edge import Receiver, Sender, Waiting
from alray.channel.message import Message, MessageKind
from alray.data.batches import Batch
from alray.nn.encoder import Tensors
from alray.schedules.evaluation import evaluation_actions
from alray.stage.clock import Clock
from alray.stage.evaluation import Evaluator
from alray.stage.ports import Ports
from alray.stage.stages.stage import Stage
from alray.tasks.task import Measured


@dataclass(frozen=True)
class Inference:
    """One evaluation on stage `number` of `stages`, of the weights after `step` mini-batches.

    Attributes:
        evaluator: gives the batches and takes the class scores; on stage 0 alone.
        inputs: a batch as the first component takes it, without labels.
        measured: takes scores and labels to what comes down in place of scores, and labels go up; None: scores do.
        count: number of evaluation batches.
    """

    number: int
    stages: int
    ports: Ports
    clock: Clock
    evaluator: Evaluator | None
    inputs: Callable[[Batch], Tensors]
    measured: Measured | None
    step: int
    count: int

    def run(self, stage: Stage) -> Waiting[None]:
        """All batches, in evaluation mode."""
        stage.evaluation_mode(True)
        if stage.virtual_stages > 1:
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
                        incoming = self._given(next(source))
                    else:
                        assert received is not None
                        incoming = received.tensors
                    passed_up, routes[batch] = self._up(stage, incoming, batch)
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

    def _given(self, batch: Batch) -> Tensors:
        """A batch as the first component takes it, with its labels where these go up."""
        inputs = self.inputs(batch)
        return inputs if self.measured is None else inputs | {"labels": batch.labels.to(inputs["s"].device)}

    def _up(self, stage: Stage, incoming: Tensors, batch: int, own: int = 0) -> tuple[Tensors, list[torch.Tensor]]:
        """E of a virtual stage: what goes up, and what comes down of each route that turns here."""
        if self.measured is None:
            return stage.infer_up(incoming, self.step, batch, own)
        labels = incoming["labels"]
        without = {name: value for name, value in incoming.items() if name != "labels"}
        outgoing, routes = stage.infer_up(without, self.step, batch, own)
        return outgoing | {"labels": labels}, [self.measured(scores, labels) for scores in routes]

    def _in_rounds(self, stage: Stage) -> Waiting[None]:
        """With virtual stages: as many batches as there are stages go round the ring of stages together.

        Each stage runs E of its first virtual stage for all of them, then of its next one, and so on. Then routes come
        down in the same way, from the last virtual stage to the first; where they need no decoding, the scores go
        straight from the last stage to the first.

        No two stages can wait for each other for ever. All stages would have to wait for room, because a stage that
        waits for a message waits for one that waits for room. Then every edge of the ring would hold a batch and every
        stage another one, which are more batches than go round at once.
        """
        source = iter(self.evaluator) if self.evaluator is not None else None
        for begin in range(0, self.count, self.stages):
            together = range(begin, min(begin + self.stages, self.count))
            routes = yield from self._round_up(stage, together, source)
            if stage.routes_come_down:
                yield from self._round_down(stage, together, routes)
            else:
                yield from self._straight_down(stage, together, routes)

    def _round_up(self, stage: Stage, together: range, source: Iterator[Batch] | None) -> Waiting[_Routes]:
        """E of these batches. Returns the routes that turn here, by virtual stage and batch."""
        ports = self.ports
        routes: _Routes = {}
        for own in range(stage.virtual_stages):
            ends = self._is_end(stage, own)
            for batch in together:
                received = None
                if source is not None and own == 0:
                    incoming = self._given(next(source))
                else:
                    received = yield from self._receive(ports.previous)
                    incoming = received.tensors
                with self.clock.measure("E", f"{own * self.stages + self.number}E{batch}", self.step):
                    outgoing, routes[own, batch] = self._up(stage, incoming, batch, own)
                if not ends:
                    yield from self._send(ports.next, Message(MessageKind.EVALUATE, batch, outgoing))
                del incoming, outgoing
                if received is not None and ports.previous is not None:
                    ports.previous.release(received)
        return routes

    def _round_down(self, stage: Stage, together: range, routes: _Routes) -> Waiting[None]:
        """D of these batches."""
        from_above, to_below = self.ports.from_above or self.ports.from_first, self.ports.to_below or self.ports.to_last
        for own in reversed(range(stage.virtual_stages)):
            for batch in together:
                above: list[torch.Tensor] = []
                if not self._is_end(stage, own):
                    received = yield from self._receive(from_above)
                    above = [route.clone() for route in received.tensors["route"].unbind(0)]
                    if from_above is not None:
                        from_above.release(received)
                with self.clock.measure("D", f"{own * self.stages + self.number}D{batch}", self.step):
                    found = routes.pop((own, batch)) + stage.infer_down(above, own)
                    if self.evaluator is not None and own == 0:
                        self.evaluator.take(batch, found)
                if self.number > 0 or own > 0:
                    message = Message(MessageKind.ROUTE, batch, {"route": torch.stack(found)})
                    yield from self._send(to_below, message)

    def _straight_down(self, stage: Stage, together: range, routes: _Routes) -> Waiting[None]:
        """The class scores of these batches go from the last stage to the first."""
        for batch in together:
            if self._is_end(stage, stage.virtual_stages - 1):
                (scores,) = routes[stage.virtual_stages - 1, batch]
                yield from self._send(self.ports.to_first, Message(MessageKind.EVALUATE, batch, {"s": scores}))
            elif self.evaluator is not None and self.ports.from_last is not None:
                received = yield from self._receive(self.ports.from_last)
                self.evaluator.take(batch, [received.tensors["s"].clone()])
                self.ports.from_last.release(received)

    def _is_end(self, stage: Stage, own: int) -> bool:
        """Whether the stage's virtual stage `own` is the last one of all."""
        return self.number == self.stages - 1 and own == stage.virtual_stages - 1

    def _receive(self, end: Receiver | None) -> Waiting[Message]:
        assert end is not None, "a ring has more than one stage"
        with self.clock.measure("receive_wait", "receive_wait", self.step):
            return (yield from end.receive())

    def _send(self, end: Sender | None, message: Message) -> Waiting[None]:
        assert end is not None, "a ring has more than one stage"
        with self.clock.measure("send_wait", "send_wait", self.step):
            yield from end.send(message)


_Routes = dict[tuple[int, int], list[torch.Tensor]]
