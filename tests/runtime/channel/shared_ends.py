"""The scenarios of `two_ends.py` over shared memory: `python shared_ends.py FOLDER`."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.distributed as dist
import two_ends

from alray.runtime.channel.shared_memory import SharedMemoryReceiver, SharedMemorySender, SlotRing

IN_FLIGHT = {"lengths": 1, "autograd": 2, "bound": 3, "both ways": 1, "too large": 3}


class SharedEnds(two_ends.Ends):
    """Ends over shared memory; the sender makes the ring, and the store tells where it is.

    Ends live as long as their process, as a stage's do.
    """

    kept: ClassVar[list[Any]] = []

    def sender(self, *, capacity: int = two_ends.CAPACITY, tag: int | None = None) -> SharedMemorySender:
        sender = SharedMemorySender(
            edge=f"{self.rank}->{1 - self.rank}",
            capacity_bytes=capacity,
            in_flight=IN_FLIGHT[self.name],
            timeout_s=20.0,
        )
        self.store.set(f"{self.name}/{tag or self.tag}/ring", sender.ring.as_text())
        self.kept.append(sender)
        return sender

    def receiver(self, in_flight: int, *, tag: int | None = None, group: Any = None, timeout_s: float = 20.0) -> Any:
        assert in_flight == IN_FLIGHT[self.name]
        receiver = SharedMemoryReceiver(
            edge=f"{1 - self.rank}->{self.rank}",
            ring=SlotRing.of_text(self.store.get(f"{self.name}/{tag or self.tag}/ring").decode()),
            device=torch.device("cpu"),
            timeout_s=timeout_s,
        )
        self.kept.append(receiver)
        return receiver


def together(ends: two_ends.Ends) -> None:
    """Neither process ends while the other still gives slots back."""
    dist.barrier(group=ends.other_group)


if __name__ == "__main__":
    two_ends.SCENARIOS = {name: two_ends.SCENARIOS[name] for name in IN_FLIGHT}
    two_ends.SCENARIOS["together"] = (together, together)
    two_ends.Ends = SharedEnds  # type: ignore[misc]
    two_ends.both_ends()
