"""The ends of the edges that one stage holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from alray.channel.edge import Barrier, Receiver, Sender
from alray.channel.wire import Wire


@dataclass
class Ports:
    """A stage's ends of the edges to its neighbours; None where there is no neighbour.

    Where stages hold several virtual stages, an edge closes the ring: from the last stage to the first.
    """

    from_below: Receiver | None = None
    to_above: Sender | None = None
    from_above: Receiver | None = None
    to_below: Sender | None = None
    barrier: Barrier | None = None
    to_first: Sender | None = None
    from_last: Receiver | None = None
    wires: dict[int, Wire] = field(default_factory=dict)
    """For a stage whose messages torch orders: by the number of the other stage; none where they go over its group."""

    @property
    def senders(self) -> tuple[Sender, ...]:
        """Every sending end."""
        return tuple(end for end in (self.to_above, self.to_below, self.to_first) if end is not None)

    def bytes_sent(self) -> dict[str, int]:
        """Bytes handed over so far, by edge."""
        total: dict[str, int] = {}
        for end in self.senders:
            total[end.edge] = total.get(end.edge, 0) + end.bytes_sent
        return total
