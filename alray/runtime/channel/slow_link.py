"""A link between stages that is slower than this machine (`pipeline.links`): messages arrive as late as over it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from alray.runtime.channel.message import Message


@dataclass
class SlowLink:
    """One direction of a link. Messages take it one after another, and each then travels for the latency.

    The sender says in the message when it arrives, and the receiver waits until then. Both read the same clock, so
    they are on one machine.
    """

    s_per_byte: float
    latency_s: float

    def __post_init__(self) -> None:
        self._free_s = 0.0

    def take(self, message: Message) -> None:
        """Put a message on the link now. Only its tensors count, as in a plan."""
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in message.tensors.values())
        self._free_s = max(self._free_s, time.monotonic()) + nbytes * self.s_per_byte
        message.arrives_s = self._free_s + self.latency_s


def wait_until_arrived(message: Message) -> None:
    """Wait for a message that is still on a slow link."""
    while (left_s := message.arrives_s - time.monotonic()) > 0:
        time.sleep(left_s)
