"""The durations of a program's actions, with which it is simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from alray.planning.schedules.actions import ActionKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Seconds: TypeAlias = Sequence[float] | NDArray[np.float64]
    """One value for each (virtual) stage, or for each pair of neighbours; an array may have an axis of cuts before."""

Through = Literal["card", "device", "itself"]
"""What the messages of a sender go through: the network card of its node, the link of its device, or a line of their
own."""


@dataclass(frozen=True, eq=False)
class Durations:
    """Seconds that each action takes.

    Computations have one value per stage, messages one per pair of neighbouring stages; with virtual stages, one per
    virtual stage and per pair of neighbouring virtual stages. With micro-batches the values are those of one
    micro-batch, except for the update. A kind that is missing takes no time, nor do messages of an empty sequence.

    A message's seconds are for packing, moving and unpacking: the sender spends half of them, the receiver the other
    half. `latency_s` passes in between, while neither is busy with the message. It also passes between the arrival of
    the last stage at a barrier and the opening of the barrier.

    Between nodes, where `lines` names what a message goes through, it also takes the link for some seconds, and its
    latency passes after them, however few bytes it has: it is sent all the same. Neither stage is busy meanwhile, but
    the sender sends its next message to this neighbour only when the messages before it take the link for no longer
    than `link_buffer_s`. All that a stage sends through its network card goes one message after another; so does what
    it sends through the link of its device.
    """

    computing: Mapping[ActionKind, Seconds]  # by the kind of action: B without L, U without averages
    up_s: Seconds = ()  # message from stage i to i + 1, without the labels if `labels_up_s` has those
    down_s: Seconds = ()  # message from stage i + 1 to i
    latency_s: float = 0.0
    labels_up_s: Seconds = ()  # the part of a message upwards that holds the labels
    averages_s: Seconds = ()  # the part of U in which replicas average, which is no computing
    up_link_s: Seconds = ()  # on the link between stage i and i + 1, of what `up_s` is about
    labels_link_s: Seconds = ()
    down_link_s: Seconds = ()
    link_latency_s: Sequence[float] = ()
    link_buffer_s: Sequence[float] = ()
    lines: tuple[Through | None, ...] = ()  # of each pair of neighbours; None: they are on one node

    @property
    def messages(self) -> tuple[tuple[Seconds, Seconds], ...]:
        """The seconds of messages, and those for which they take their links: of what goes up, of labels, and of what
        goes down."""
        up = self.up_s, self.up_link_s
        labels = (self.labels_up_s, self.labels_link_s) if len(self.labels_up_s) else up
        return up, labels, (self.down_s, self.down_link_s)

    def times(self, factors: Sequence[float]) -> Durations:
        """The same with the computing of each (virtual) stage multiplied by its factor; messages and averages stay."""
        longer = {
            kind: [own * factor for own, factor in zip(seconds, factors, strict=True)]
            for kind, seconds in self.computing.items()
        }
        return replace(self, computing=longer)

    @property
    def unhindered(self) -> Durations:
        """The same with messages and barriers that take no time."""
        return replace(self, up_s=(), down_s=(), labels_up_s=(), latency_s=0.0, lines=())
