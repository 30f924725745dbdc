"""A binomial tree: sums go up to rank 0, then the result comes down."""

from __future__ import annotations

import math

import torch

from alray.planning.prediction.all_reduce import LinkCost
from alray.runtime.channel.all_reduce import AllReduce


class TreeAllReduce(AllReduce):
    """Cost 2 log2(n) (a + m b): few messages, each with the whole tensor.

    The parent of rank r is r without its lowest set bit. Its children are r + 1, r + 2, r + 4, ... below that bit.
    """

    name = "tree"

    @staticmethod
    def seconds(n: int, m: float, link: LinkCost) -> float:
        return 2 * math.ceil(math.log2(n)) * (link.latency_s + m * link.s_per_byte)

    def _sum(self, tensor: torch.Tensor) -> None:
        arrived = self._spare_like(tensor)
        for child in self._children():
            self._exchange(receive=[(arrived, child)])
            tensor += arrived
        if self.rank > 0:
            self._exchange(send=[(tensor, self._parent)])
        self._spread(tensor)

    def _gather(self, rows: torch.Tensor) -> None:
        # The subtree of a child holds the ranks from it up to, not including, the next child.
        for child in self._children():
            self._exchange(receive=[(rows[child : child + (child - self.rank)].view(-1), child)])
        if self.rank > 0:
            self._exchange(send=[(rows[self.rank : self.rank + self._span].view(-1), self._parent)])
        self._spread(rows.view(-1))

    def _spread(self, tensor: torch.Tensor) -> None:
        """Send rank 0's tensor down the tree, to the child with the largest subtree first."""
        if self.rank > 0:
            self._exchange(receive=[(tensor, self._parent)])
        for child in reversed(self._children()):
            self._exchange(send=[(tensor, child)])

    @property
    def _span(self) -> int:
        """Ranks in this rank's subtree if n is a power of two; there may be fewer otherwise."""
        return self.rank & -self.rank if self.rank > 0 else 1 << (self.size - 1).bit_length()

    @property
    def _parent(self) -> int:
        return self.rank - self._span

    def _children(self) -> list[int]:
        """The child ranks, smallest subtree first."""
        distances = [1 << power for power in range(self._span.bit_length() - 1)]
        return [self.rank + distance for distance in distances if self.rank + distance < self.size]
