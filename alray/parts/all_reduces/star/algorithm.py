"""A star: rank 0 adds up the tensors of the others and sends each of them the result, as a parameter server does."""

from __future__ import annotations

import torch

from alray.planning.prediction.all_reduce import LinkCost
from alray.runtime.channel.all_reduce import AllReduce


class StarAllReduce(AllReduce):
    """Cost 2(n-1) (a + m b): rank 0 exchanges the whole tensor with one rank after another."""

    name = "star"

    @staticmethod
    def seconds(n: int, m: float, link: LinkCost) -> float:
        return 2 * (n - 1) * (link.latency_s + m * link.s_per_byte)

    def _sum(self, tensor: torch.Tensor) -> None:
        if self.rank == 0:
            arrived = self._spare_like(tensor)
            for peer in range(1, self.size):
                self._exchange(receive=[(arrived, peer)])
                tensor += arrived
        else:
            self._exchange(send=[(tensor, 0)])
        self._spread(tensor)

    def _gather(self, rows: torch.Tensor) -> None:
        if self.rank == 0:
            self._exchange(receive=[(rows[peer], peer) for peer in range(1, self.size)])
        else:
            self._exchange(send=[(rows[self.rank], 0)])
        self._spread(rows.view(-1))

    def _spread(self, tensor: torch.Tensor) -> None:
        """Send rank 0's tensor to all other ranks."""
        if self.rank == 0:
            self._exchange(send=[(tensor, peer) for peer in range(1, self.size)])
        else:
            self._exchange(receive=[(tensor, 0)])
