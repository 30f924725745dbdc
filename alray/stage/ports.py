"""The ends of the edges that one stage holds, and how large the messages over them are."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from alray.channel.edge import Barrier, Receiver, Sender
from alray.channel.message import packed_bytes
from alray.channel.wire import Wire
from alray.nn.network import Network
from alray.stage.assignment import Assignment


@dataclass
class Ports:
    """A stage's ends of the edges to its neighbours; None where there is no neighbour.

    Where stages hold several virtual stages, one more edge goes from the last stage to the first.
    """

    from_below: Receiver | None = None
    to_above: Sender | None = None
    from_above: Receiver | None = None
    to_below: Sender | None = None
    barrier: Barrier | None = None
    to_first: Sender | None = None
    from_last: Receiver | None = None
    wires: dict[int, Wire] = field(default_factory=dict)
    """Edges for messages that torch's pipelines order, by the number of the other stage. To a stage that is not among
    them, these messages go over the process group."""

    @property
    def senders(self) -> tuple[Sender, ...]:
        """Every sending end."""
        return tuple(end for end in (self.to_above, self.to_below, self.to_first) if end is not None)

    def close(self) -> None:
        """Free what all ends hold. Call it when all stages have ended."""
        ends = (*self.senders, self.from_below, self.from_above, self.from_last, self.barrier, *self.wires.values())
        for end in ends:
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

    def up(self, after: int) -> int:
        """Of a message that goes up from component `after` (counted from 0), in training and in evaluation."""
        samples = self.assignment.spec.data.batch_size
        if self.assignment.pipelined:
            return self._up_pipelined(after)
        return packed_bytes([shape.sample_bytes * samples for shape in self.network.edge(after).values()])

    def labels_up(self, after: int) -> int:
        """Of the second part of a training message that goes up from component `after`; 0: messages have one part."""
        if self.assignment.pipelined:
            return 0
        samples = self.assignment.spec.data.batch_size
        labels = self.network.method.labels_out(after)
        return packed_bytes([shape.sample_bytes * samples for shape in labels.values()])

    def _up_pipelined(self, after: int) -> int:
        """A pipeline's edges carry labels in training, and s or class scores in evaluation.

        With virtual stages an edge carries the messages of all of them.
        """
        assignment, network = self.assignment, self.network
        samples = assignment.spec.data.batch_size
        ends = [after] if assignment.plan.virtual_stages == 1 else self._part_ends
        largest = max(network.encoders[end].output.sample_bytes for end in ends)
        scores_bytes = assignment.data.classes * network.dtype.itemsize
        sizes = [samples * max(largest, scores_bytes, torch.int64.itemsize)]
        if assignment.data.sample.words is not None:
            sizes.append(samples * assignment.data.sample[0])  # the mask
        return packed_bytes(sizes)

    def down(self, above: int) -> int:
        """Of a message that goes down from the stage that begins with component `above`: one tensor, of all routes."""
        routes, samples = self.network.num_routes(above), self.assignment.spec.data.batch_size
        return packed_bytes([routes * samples * self.network.route_shape(above).sample_bytes])

    def wire(self) -> tuple[int, int]:
        """Of a micro-batch's output or gradient; and how many of these may wait at once.

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
