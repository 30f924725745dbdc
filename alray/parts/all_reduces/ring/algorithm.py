"""The ring: every rank sends to its right neighbour only, so that n parts of the tensor travel on n edges at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from alray.planning.prediction.all_reduce import LinkCost
from alray.runtime.channel.all_reduce import AllReduce


class RingAllReduce(AllReduce):
    """Cost 2(n-1) a + 2m b (n-1)/n: the fewest bytes possible, but a latency that grows with n.

    From Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009). Part p
    starts at rank p+1, gets one addend at each rank and is complete at rank p. Then the complete parts go round.
    """

    name = "ring"

    @staticmethod
    def seconds(n: int, m: float, link: LinkCost) -> float:
        return 2 * (n - 1) * link.latency_s + 2 * m * link.s_per_byte * (n - 1) / n

    def _sum(self, tensor: torch.Tensor) -> None:
        parts = tensor.tensor_split(self.size)
        spare = self._spare_like(parts[0])
        for step in range(self.size - 1):
            leaving = parts[(self.rank - step - 1) % self.size]
            growing = parts[(self.rank - step - 2) % self.size]
            arrived = spare[: growing.numel()]
            self._exchange(receive=[(arrived, self._left)], send=[(leaving, self._right)])
            growing += arrived
        self._pass_round(parts)

    def _gather(self, rows: torch.Tensor) -> None:
        self._pass_round(list(rows))

    def _pass_round(self, parts: Sequence[torch.Tensor]) -> None:
        """Before, part r is complete at rank r only; afterwards every rank has all complete parts."""
        for step in range(self.size - 1):
            leaving = parts[(self.rank - step) % self.size]
            arriving = parts[(self.rank - step - 1) % self.size]
            self._exchange(receive=[(arriving, self._left)], send=[(leaving, self._right)])

    @property
    def _left(self) -> int:
        return (self.rank - 1) % self.size

    @property
    def _right(self) -> int:
        return (self.rank + 1) % self.size
