"""The durations of a program's actions, from which bounds and simulations are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from alray.planning.schedules.actions import ActionKind

Through = Literal["card", "device", "itself"]
"""What the messages of a sender go through: the network card of its node, the link of its device, or a line of their
own."""


@dataclass(frozen=True)
class Durations:
    """Seconds that each action takes.

    Computations have one value per stage, messages one per pair of neighbouring stages; with virtual stages, one per
    virtual stage and per pair of neighbouring virtual stages. With micro-batches the values are those of one
    micro-batch, except for the update. An empty sequence means that the action takes no time.

    A message's seconds are for packing, moving and unpacking: the sender spends half of them, the receiver the other
    half. `latency_s` passes in between, while neither is busy with the message. It also passes between the arrival of
    the last stage at a barrier and the opening of the barrier.

    Between nodes, where `has_link` says so, a message also takes the link for some seconds, and its latency passes
    after them, however few bytes it has: it is sent all the same. Neither stage is busy meanwhile, but the sender sends
    its next message to this neighbour only when the messages before it take the link for no longer than
    `link_buffer_s`. All that a stage sends through its network card goes one message after another; so does what it
    sends through the link of its device. `link_through` says which of them a link is.
    """

    forward_s: Sequence[float]
    backward_s: Sequence[float]  # without L
    update_s: Sequence[float]
    infer_s: Sequence[float] = ()
    route_s: Sequence[float] = ()
    up_s: Sequence[float] = ()  # message from stage i to i + 1, without the labels if `labels_up_s` has those
    down_s: Sequence[float] = ()  # message from stage i + 1 to i
    latency_s: float = 0.0
    input_gradient_s: Sequence[float] = ()
    weight_gradient_s: Sequence[float] = ()
    recompute_s: Sequence[float] = ()  # a forward once more
    label_s: Sequence[float] = ()
    labels_up_s: Sequence[float] = ()  # the part of a message upwards that holds the labels
    averages_s: Sequence[float] = ()  # the part of `update_s` in which replicas average, which is no computing
    up_link_s: Sequence[float] = ()  # on the link between stage i and i + 1, of what `up_s` is about
    labels_link_s: Sequence[float] = ()
    down_link_s: Sequence[float] = ()
    link_latency_s: Sequence[float] = ()
    link_buffer_s: Sequence[float] = ()
    has_link: Sequence[bool] = ()
    link_through: Sequence[Through] = ()  # empty: each by itself

    @property
    def computations(self) -> dict[ActionKind, Sequence[float]]:
        """The seconds of each kind of computation."""
        return {
            "F": self.forward_s,
            "L": self.label_s,
            "B": self.backward_s,
            "U": self.update_s,
            "E": self.infer_s,
            "D": self.route_s,
            "I": self.input_gradient_s,
            "G": self.weight_gradient_s,
            "C": self.recompute_s,
        }

    @property
    def labels_s(self) -> list[float]:
        """`label_s` with its zeros written out."""
        return list(self.label_s) or [0.0] * len(self.forward_s)

    @property
    def after_labels_s(self) -> list[float]:
        """B and U together."""
        return [backward + update for backward, update in zip(self.backward_s, self.update_s, strict=True)]

    @property
    def after_forward_s(self) -> list[float]:
        """L, B and U together."""
        return [label + rest for label, rest in zip(self.labels_s, self.after_labels_s, strict=True)]

    @property
    def computing(self) -> Durations:
        """What of each action is computing: messages and averages take no time."""
        averages = self.averages_s or [0.0] * len(self.update_s)
        update = [whole - average for whole, average in zip(self.update_s, averages, strict=True)]
        return replace(self, update_s=update, averages_s=(), up_s=(), down_s=(), labels_up_s=())

    def times(self, factors: Sequence[float]) -> Durations:
        """The same with the computing of each (virtual) stage multiplied by its factor; messages and averages stay."""

        def longer(seconds: Sequence[float]) -> list[float]:
            return [own * factor for own, factor in zip(seconds, factors, strict=True)] if seconds else []

        update = longer(self.computing.update_s)
        if self.averages_s:
            update = [own + average for own, average in zip(update, self.averages_s, strict=True)]
        return replace(
            self,
            forward_s=longer(self.forward_s),
            label_s=longer(self.label_s),
            backward_s=longer(self.backward_s),
            update_s=update,
            infer_s=longer(self.infer_s),
            route_s=longer(self.route_s),
            input_gradient_s=longer(self.input_gradient_s),
            weight_gradient_s=longer(self.weight_gradient_s),
            recompute_s=longer(self.recompute_s),
        )
