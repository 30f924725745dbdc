"""The ends of the edges that one stage holds, and how large the messages over them are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from alray.models.network import Network
from alray.planning.prediction.plan import Plan
from alray.runtime.channel.edge import Barrier, Receiver, Sender
from alray.runtime.channel.in_process import Queue
from alray.runtime.channel.inbox import Inbox
from alray.runtime.channel.message import packed_bytes
from alray.runtime.stage.assignment import Assignment

WAITING_COPIES = 1
"""Copies that may wait on their edge while the one before is received. When the last stage has made one, the others
have received all but the one before it, even if there is one after every mini-batch."""


Stream = Literal["up", "down"]
"""What goes over an edge: the outputs of a virtual stage to the next one, or gradients and routes to the one before."""
STREAMS: tuple[Stream, ...] = ("up", "down")
WITHIN = "within the stage"
"""In place of the name of an edge: two virtual stages that follow each other lie on one stage."""


@dataclass
class Ports:
    """A stage's ends of its edges, for each of its virtual stages.

    Attributes:
        up_from, up_to: from the virtual stage before, and to the one after; None where there is none.
        down_from, down_to: from the virtual stage after, and to the one before.
        barrier: None for a stage alone.
        copies: from the last stage, where components have copies of a part of the last one.
        copies_below: of the last stage, to every other stage that needs copies.
    """

    up_from: Sequence[Inbox | None] = (None,)
    up_to: Sequence[Sender | None] = (None,)
    down_from: Sequence[Inbox | None] = (None,)
    down_to: Sequence[Sender | None] = (None,)
    barrier: Barrier | None = None
    copies: Receiver | None = None
    copies_below: Sequence[Sender] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        stage: int,
        *,
        senders: Mapping[tuple[Stream, int], Sender] = MappingProxyType({}),
        inboxes: Mapping[tuple[Stream, int], Inbox] = MappingProxyType({}),
        barrier: Barrier | None = None,
        copies: Receiver | None = None,
        copies_below: Sequence[Sender] = (),
    ) -> Ports:
        """
        Args:
            senders: by stream and the stage at the other end.
            inboxes: the same.
        """
        held = plan.held(stage)
        senders, inboxes = dict(senders), dict(inboxes)
        if any(plan.stage_of(virtual + 1) == stage for virtual in held if virtual < plan.top):
            for stream in STREAMS:  # what a stage hands over to itself stays where it is
                queue = senders[stream, stage] = Queue(WITHIN, sys.maxsize)
                inboxes[stream, stage] = Inbox(queue)
        # -1 where none is before or after: no stage has that number.
        below = [plan.stage_of(virtual - 1) if virtual > 0 else -1 for virtual in held]
        above = [plan.stage_of(virtual + 1) if virtual < plan.top else -1 for virtual in held]
        return cls(
            up_from=[inboxes.get(("up", peer)) for peer in below],
            up_to=[senders.get(("up", peer)) for peer in above],
            down_from=[inboxes.get(("down", peer)) for peer in above],
            down_to=[senders.get(("down", peer)) for peer in below],
            barrier=barrier,
            copies=copies,
            copies_below=copies_below,
        )

    @property
    def senders(self) -> list[Sender]:
        """Every sending end, once."""
        return list(dict.fromkeys(end for end in (*self.up_to, *self.down_to, *self.copies_below) if end is not None))

    def close(self) -> None:
        """Free what all ends hold. Call it when all stages have ended."""
        inboxes = dict.fromkeys(end for end in (*self.up_from, *self.down_from) if end is not None)
        for end in (*self.senders, *inboxes, self.copies, self.barrier):
            if end is not None:
                end.close()

    def bytes_sent(self) -> dict[str, int]:
        """Bytes sent to other stages so far, by edge."""
        total: dict[str, int] = {}
        for end in self.senders:
            if end.edge == WITHIN:
                continue
            total[end.edge] = total.get(end.edge, 0) + end.bytes_sent
        return total


@dataclass(frozen=True)
class MessageSizes:
    """Bytes of the largest messages of a stage, for the buffers of its edges."""

    assignment: Assignment
    network: Network

    def up(self, source: int) -> int:
        """Bytes of a message from stage `source` to a next virtual stage, in training and in evaluation."""
        samples = self.assignment.spec.data.batch_size
        network = self.network
        sizes = []
        for end in self._ends(source):
            for edge in (network.edge(end), network.inference_edge(end)):
                sizes.append(packed_bytes([shape.sample_bytes * samples for shape in edge.values()]))
        return max(sizes)

    def labels_up(self, source: int) -> int:
        """Bytes of the second part of a training message as in `up`; 0: messages have one part."""
        if not self.network.method.local_losses:
            return 0
        samples = self.assignment.spec.data.batch_size
        return max(
            packed_bytes([shape.sample_bytes * samples for shape in self.network.method.labels_out(end).values()])
            for end in self._ends(source)
        )

    def down(self, source: int) -> int:
        """Bytes of a message from stage `source` to a virtual stage before: one tensor of all routes, or gradients."""
        network, plan = self.network, self.assignment.plan
        samples = self.assignment.spec.data.batch_size
        begins = [run[0] for run in plan.stage_plans[source].runs if run[0] > 0]
        sizes = []
        for begin in begins:
            routes = network.num_routes(begin) * samples * network.comes_down(begin).sample_bytes
            sizes.append(packed_bytes([routes]))
            if not network.method.local_losses:
                gradients = network.gradient_edge(begin - 1).values()
                sizes.append(packed_bytes([shape.sample_bytes * samples // plan.micro_batches for shape in gradients]))
        return max(sizes)

    def copy(self) -> int:
        """Bytes of a copy of what the last component gives to the others."""
        network = self.network
        return packed_bytes([shape.sample_bytes for shape in network.method.copied(network.encoders).values()])

    def _ends(self, stage: int) -> list[int]:
        """The last component of each virtual stage that the stage holds and that another one follows."""
        last = len(self.assignment.plan.costs.components) - 1
        return [run[-1] for run in self.assignment.plan.stage_plans[stage].runs if run[-1] < last]
