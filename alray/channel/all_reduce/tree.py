"""A binomial tree: sums go up to rank 0, the result comes down again."""

from __future__ import annotations

import torch

from alray.channel.all_reduce.algorithm import AllReduce


class Tree(AllReduce):
    """2 log2(n) (a + m b): few messages, each of the whole tensor.

    Rank r hangs below the rank that lacks r's lowest set bit; its children are r + 1, r + 2, r + 4, ... below that bit.
    """

    name = "tree"

    def _sum(self, tensor: torch.Tensor) -> None:
        arrived = self._spare_like(tensor)
        for child in self._children():
            self._exchange(receive=[(arrived, child)])
            tensor += arrived
        if self.rank > 0:
            self._exchange(send=[(tensor, self._parent)])
        self._spread(tensor)

    def _gather(self, rows: torch.Tensor) -> None:
        # The subtree of a rank is the ranks from it up to the next of its height.
        for child in self._children():
            self._exchange(receive=[(rows[child : child + (child - self.rank)].view(-1), child)])
        if self.rank > 0:
            self._exchange(send=[(rows[self.rank : self.rank + self._span].view(-1), self._parent)])
        self._spread(rows.view(-1))

    def _spread(self, tensor: torch.Tensor) -> None:
        """Rank 0's tensor, down the tree: the child with the most below it first."""
        if self.rank > 0:
            self._exchange(receive=[(tensor, self._parent)])
        for child in reversed(self._children()):
            self._exchange(send=[(tensor, child)])

    @property
    def _span(self) -> int:
        """Ranks in the subtree of this one, were n a power of two."""
        return self.rank & -self.rank if self.rank > 0 else 1 << (self.size - 1).bit_length()

    @property
    def _parent(self) -> int:
        return self.rank - self._span

    def _children(self) -> list[int]:
        """Nearest first."""
        distances = [1 << power for power in range(self._span.bit_length() - 1)]
        return [self.rank + distance for distance in distances if self.rank + distance < self.size]
