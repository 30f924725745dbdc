"""The ends of the edges that one stage holds, and how large the messages over them are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from alray.channel.edge import Barrier, Receiver, Sender
from alray.channel.message import packed_bytes
from alray.channel.wire import Wire
from alray.nn.network import Network
from alray.stage.assignment import Assignment

WAITING_COPIES = 1
"""Copies that may wait on their edge while the one before is received. When the last stage has made one, the others
have received all but the one before it, even if there is one after every mini-batch."""


@dataclass
class Ports:
    """A stage's ends of the edges to its neighbours; None where there is no neighbour.

    Where stages hold several virtual stages, one more edge goes from the last stage to the first. With local losses
    another one goes back, for the routes of inference.
    """

    from_below: Receiver | None = None
    to_above: Sender | None = None
    from_above: Receiver | None = None
    to_below: Sender | None = None
    barrier: Barrier | None = None
    to_first: Sender | None = None
    from_last: Receiver | None = None
    to_last: Sender | None = None
    from_first: Receiver | None = None
    copies: Receiver | None = None
    """From the last stage, where components have copies of a part of the last one."""
    copies_below: Sequence[Sender] = ()
    """Of the last stage: to every other stage that needs copies."""
    wires: dict[int, Wire] = field(default_factory=dict)
    """Edges for messages that torch's pipelines order, by the number of the other stage. To a stage that is not among
    them, these messages go over the process group."""

    @property
    def previous(self) -> Receiver | None:
        """The edge from the virtual stage before one that this stage holds."""
        return self.from_below or self.from_last

    @property
    def next(self) -> Sender | None:
        """The edge to the virtual stage after one that this stage holds."""
        return self.to_above or self.to_first

    @property
    def senders(self) -> tuple[Sender, ...]:
        """Every sending end."""
        ends = (self.to_above, self.to_below, self.to_first, self.to_last, *self.copies_below)
        return tuple(end for end in ends if end is not None)

    def close(self) -> None:
        """Free what all ends hold. Call it when all stages have ended."""
        receivers = (self.from_below, self.from_above, self.from_last, self.from_first, self.copies)
        for end in (*self.senders, *receivers, self.barrier, *self.wires.values()):
            if end is not None:
                end.close()

    def bytes_sent(self) -> dict[str, int]:
        """Bytes handed over so far, by edge."""
        total: dict[str, int] = {}
        for end in self.senders:
            total[end.edge] = total.get(end.edge, 0) + end.bytes_sent
        return total


@dataclass(frozen=True)
class MessageSizes:
    """Bytes of the largest messages of a stage, for the buffers of its edges."""

    assignment: Assignment
    network: Network

    def up(self, source: int) -> int:
        """Bytes of a message from stage `source` to the next one, or from the last stage to the first, in training and
        in evaluation."""
        return max(map(self._up_pipelined if self.assignment.pipelined else self._up, self._ends(source)))

    def labels_up(self, source: int) -> int:
        """Bytes of the second part of a training message as in `up`; 0: messages have one part."""
        if self.assignment.pipelined:
            return 0
        samples = self.assignment.spec.data.batch_size
        return max(
            packed_bytes([shape.sample_bytes * samples for shape in self.network.method.labels_out(end).values()])
            for end in self._ends(source)
        )

    def _up(self, after: int) -> int:
        """Bytes of a message of local losses from component `after` (counted from 0)."""
        samples = self.assignment.spec.data.batch_size
        edges = (self.network.edge(after), self.network.inference_edge(after))
        return max(packed_bytes([shape.sample_bytes * samples for shape in edge.values()]) for edge in edges)

    def _up_pipelined(self, after: int) -> int:
        """A pipeline's edges carry labels in training, and s or class scores in evaluation."""
        assignment, network = self.assignment, self.network
        samples = assignment.spec.data.batch_size
        scores_bytes = network.comes_down(0).sample_bytes
        labels = network.method.given_labels["labels"].sample_bytes
        sizes = [samples * max(network.encoders[after].output.sample_bytes, scores_bytes, labels)]
        if assignment.data.sample.words is not None:
            sizes.append(samples * assignment.data.sample[0])  # the mask
        if network.measures_where_routes_end:
            sizes.append(samples * labels)
        return packed_bytes(sizes)

    def down(self, source: int) -> int:
        """Bytes of a message from stage `source` to the one before it, or from the first stage to the last: one tensor
        of all routes."""
        samples = self.assignment.spec.data.batch_size
        begins = [run[0] for run in self.assignment.plan.stage_plans[source].runs if run[0] > 0]
        return max(
            packed_bytes([self.network.num_routes(begin) * samples * self.network.comes_down(begin).sample_bytes])
            for begin in begins
        )

    def copy(self) -> int:
        """Bytes of a copy of what the last component gives to the others."""
        network = self.network
        return packed_bytes([shape.sample_bytes for shape in network.method.copied(network.encoders).values()])

    def _ends(self, stage: int) -> list[int]:
        """The last component of each virtual stage that the stage holds and that another one follows."""
        last = len(self.assignment.plan.costs.components) - 1
        return [run[-1] for run in self.assignment.plan.stage_plans[stage].runs if run[-1] < last]

    def wire(self) -> tuple[int, int]:
        """Bytes of a micro-batch's output or gradient, and how many of these may wait at once.

        That is as many as a mini-batch has, so that a send never waits.
        """
        assignment, plan = self.assignment, self.assignment.plan
        samples = assignment.shares[assignment.replica] // plan.micro_batches
        largest = max(self.network.encoders[end].output.sample_bytes for end in self._part_ends)
        return packed_bytes([samples * largest]), 2 * plan.micro_batches * plan.virtual_stages

    @property
    def _part_ends(self) -> list[int]:
        """The last component of every virtual stage of every stage."""
        return [run[-1] for stage in self.assignment.plan.stage_plans for run in stage.runs]
