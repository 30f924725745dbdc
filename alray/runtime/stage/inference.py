"""A stage's part of an evaluation: batches go up through the stages, and class scores come back to stage 0. The
`Evaluator` there gives the batches, and takes the metric of each route.

Operations that may have to wait are generators (see `alray.runtime.channel.edge`). Gradients are switched off inside
each action only, because another stage of the same process may train between two actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from alray.core.run_folder.records import DepthScores, Scores
from alray.data.batches import Batch, EvaluationBatches
from alray.data.dataset import Dataset
from alray.data.division import having
from alray.models.encoder import Tensors
from alray.models.task import Measured, Tally
from alray.planning.schedules.actions import Action
from alray.planning.schedules.evaluation import evaluation_actions
from alray.runtime.channel.edge import Sender, Waiting
from alray.runtime.channel.inbox import Inbox
from alray.runtime.channel.message import Message, MessageKind
from alray.runtime.stage.clock import Clock
from alray.runtime.stage.ports import WITHIN, Ports
from alray.runtime.stage.stage import Stage


@dataclass
class Evaluator:
    """Gives the batches of an evaluation and takes the scores that come back.

    Attributes:
        asked: splits, of "train", "validation", "test"; those the data does not have are left out.
        depths: of all routes, shallowest first.
        measured: whether what is taken is what the task's `measured` makes of scores, not these themselves.
    """

    data: Dataset
    asked: tuple[str, ...]
    depths: Sequence[int]
    measured: bool = False

    def __post_init__(self) -> None:
        splits = [split for split in self.asked if self.data.splits.get(split) is not None]
        self._batches = {split: EvaluationBatches(self.data, split) for split in splits}
        self._tallies: dict[str, list[Tally]] = {
            split: [self.data.task.tally() for _ in self.depths] for split in splits
        }
        self._expected: list[tuple[str, torch.Tensor]] = []

    def __len__(self) -> int:
        """Evaluation batches over all splits."""
        return sum(len(batches) for batches in self._batches.values())

    def __iter__(self) -> Iterator[Batch]:
        for split, batches in self._batches.items():
            for batch in batches:
                self._expected.append((split, batch.labels))
                yield batch

    def take(self, batch: int, scores: list[torch.Tensor]) -> None:
        """Scores of evaluation batch `batch` by every route, `[N, outputs]` each, shallowest first."""
        split, labels = self._expected[batch]
        in_units = self.data.in_units(labels)
        for tally, route in zip(self._tallies[split], scores, strict=True):
            found = route if self.measured else self.data.task.measured(self.data.in_units(route), labels)
            tally.take(found, in_units)

    def told(self, scores: Sequence[DepthScores]) -> list[str]:
        """Sentences about what the metric says nothing of, because of the labels of a split.

        Args:
            scores: what `scores` gave.
        """
        title, lines = self.data.task.metric.title, []
        for split, (tally, *_) in self._tallies.items():
            if not tally.samples:
                continue
            missing = [self.data.classes[number] for number in tally.undefined]
            have = having(self.data.task.section.label, missing, tally.lack) if missing else ""
            if getattr(scores[0], split) is None:
                lines.append(f"{title} is not defined for the {split} split{': ' * bool(have)}{have}")
            elif have:
                lines.append(f"{have} in the {split} split: {tally.instead} {title}")
        return lines

    def scores(self) -> list[DepthScores]:
        """The metric of every route, shallowest first; the last is the whole network."""
        measured = {split: tallies for split, tallies in self._tallies.items() if tallies[0].samples}
        if not measured:
            return []
        found = []
        for number, depth in enumerate(self.depths):
            tallies = {split: each[number] for split, each in measured.items()}
            further: dict[str, dict[str, float | None]] = {}
            for split, tally in tallies.items():
                for name, value in tally.further.items():
                    further.setdefault(name, {})[split] = value
            values = {split: tally.value() for split, tally in tallies.items()}
            named = {name: Scores(**each) for name, each in further.items()}
            found.append(DepthScores(depth=depth, further=named, **values))
        return found


@dataclass(frozen=True)
class Inference:
    """One evaluation on stage `number` of `stages`, of the weights after `step` mini-batches.

    Attributes:
        held: the virtual stages of the stage, the lowest first.
        evaluator: gives the batches and takes the class scores; on stage 0 alone.
        inputs: a batch as the first component takes it, without labels.
        measured: computes, from the scores of a route and the labels, what comes down instead of the scores. Labels
            then go up with the batch. None: no labels go up, and the scores come down.
        count: number of evaluation batches.
    """

    number: int
    stages: int
    held: Sequence[int]
    ports: Ports
    clock: Clock
    evaluator: Evaluator | None
    inputs: Callable[[Batch], Tensors]
    measured: Measured | None
    step: int
    count: int

    def run(self, stage: Stage) -> Waiting[None]:
        """All batches, in evaluation mode."""
        ports = self.ports
        stage.work.evaluation_mode(True)
        actions: Iterable[Action] = evaluation_actions(self.number, self.stages, self.count)
        if stage.virtual_stages > 1:
            actions = self._rounds()
        source = iter(self.evaluator) if self.evaluator is not None else None
        received: Message | None = None
        above: list[torch.Tensor] = []
        passed_up: Tensors = {}
        routes: dict[Action, list[torch.Tensor]] = {}
        for action in actions:
            virtual, batch, text = action.stage, action.batch, str(action)
            own = self.held.index(virtual)
            turning = Action(virtual, "D", batch)
            match action.kind:
                case "R" if action.down:
                    message = yield from self._take(ports.down_from[own], MessageKind.ROUTE, batch, virtual)
                    above = [route.clone() for route in message.tensors["route"].unbind(0)]
                    _release(ports.down_from[own], message)
                case "R":
                    received = yield from self._take(ports.up_from[own], MessageKind.EVALUATE, batch, virtual)
                case "E":
                    with self.clock.measure("E", text, self.step):
                        incoming = self._incoming(source if virtual == 0 else None, received)
                        passed_up, routes[turning] = self._up(stage, incoming, batch, own)
                        del incoming
                    if ports.up_to[own] is None:
                        _release(ports.up_from[own], received)
                        received = None
                case "D":
                    with self.clock.measure("D", text, self.step):
                        routes[turning] += stage.work.infer_down(above, own)
                        above = []
                        if self.evaluator is not None and virtual == 0:
                            self.evaluator.take(batch, routes.pop(turning))
                    yield  # a stage that is alone waits for nobody, and another one or a callback may wait for its turn
                case "S" if action.down:
                    passed_down = {"route": torch.stack(routes.pop(turning))}
                    yield from self._send(ports.down_to[own], MessageKind.ROUTE, batch, virtual - 1, passed_down)
                    passed_down = {}
                case "S":
                    yield from self._send(ports.up_to[own], MessageKind.EVALUATE, batch, virtual + 1, passed_up)
                    _release(ports.up_from[own], received)
                    received, passed_up = None, {}
        stage.work.evaluation_mode(False)

    def _rounds(self) -> Iterator[Action]:
        """With virtual stages: as many batches as there are stages go through all of them together.

        Each stage runs E of its first virtual stage for all of them, then of its next one, and so on. Then routes come
        down in the same way, from the last virtual stage to the first.

        No two stages can wait for each other for ever. All stages would have to wait for room, because a stage that
        waits for a message waits for one that waits for room. Then every edge of the ring would hold a batch and every
        stage another one, which are more batches than go round at once. Where a stage hands batches over to itself,
        there is always room, so it never waits for any.
        """
        for begin in range(0, self.count, self.stages):
            together = range(begin, min(begin + self.stages, self.count))
            for virtual, batch in product(self.held, together):
                own = self.held.index(virtual)
                if self.ports.up_from[own] is not None:
                    yield Action(virtual, "R", batch)
                yield Action(virtual, "E", batch)
                if self.ports.up_to[own] is not None:
                    yield Action(virtual, "S", batch)
            for virtual, batch in product(reversed(self.held), together):
                own = self.held.index(virtual)
                if self.ports.down_from[own] is not None:
                    yield Action(virtual, "R", batch, down=True)
                yield Action(virtual, "D", batch)
                if self.ports.down_to[own] is not None:
                    yield Action(virtual, "S", batch, down=True)

    def _incoming(self, source: Iterator[Batch] | None, received: Message | None) -> Tensors:
        if source is not None:
            return self._given(next(source))
        assert received is not None, "E before R"
        return received.tensors

    def _given(self, batch: Batch) -> Tensors:
        """A batch as the first component takes it, with its labels where these go up."""
        inputs = self.inputs(batch)
        return inputs if self.measured is None else inputs | {"labels": batch.labels.to(inputs["s"].device)}

    def _up(self, stage: Stage, incoming: Tensors, batch: int, own: int) -> tuple[Tensors, list[torch.Tensor]]:
        """E of a virtual stage: what goes up, and what comes down of each route that turns here.

        What came in is released before routes come down, and before the next virtual stage computes if this stage
        holds that too. So nothing that stays here lies in its buffer, such as a mask that is passed on.
        """
        if self.measured is None:
            outgoing, routes = stage.work.infer_up(incoming, self.step, batch, own)
        else:
            labels = incoming["labels"]
            without = {name: value for name, value in incoming.items() if name != "labels"}
            outgoing, routes = stage.work.infer_up(without, self.step, batch, own)
            outgoing, routes = outgoing | {"labels": labels}, [self.measured(scores, labels) for scores in routes]
        if self.ports.up_from[own] is None:
            return outgoing, routes
        outlet = self.ports.up_to[own]
        if outlet is not None and outlet.edge == WITHIN:
            outgoing = {name: _apart(value, incoming) for name, value in outgoing.items()}
        return outgoing, [_apart(route, incoming) for route in routes]

    def _take(self, inbox: Inbox | None, kind: MessageKind, batch: int, virtual: int) -> Waiting[Message]:
        """Wait for the message of an evaluation batch that virtual stage `virtual` gets."""
        assert inbox is not None, "nothing comes where the network ends"
        with self.clock.measure("receive_wait", "receive_wait", self.step):
            return (yield from inbox.take(kind, batch, virtual))

    def _send(
        self, outlet: Sender | None, kind: MessageKind, batch: int, virtual: int, tensors: Tensors
    ) -> Waiting[None]:
        assert outlet is not None, "nothing leaves where the network ends"
        with self.clock.measure("send_wait", "send_wait", self.step):
            yield from outlet.send(Message(kind, batch, tensors, virtual=virtual))


def _release(inbox: Inbox | None, received: Message | None) -> None:
    if received is not None and inbox is not None:
        inbox.release(received)


def _apart(value: torch.Tensor, incoming: Tensors) -> torch.Tensor:
    """The value, in memory that it does not share with what came in."""
    memory = {each.untyped_storage()._cdata for each in incoming.values()}
    return value.clone() if value.untyped_storage()._cdata in memory else value
