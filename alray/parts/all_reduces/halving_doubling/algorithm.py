"""Recursive halving and doubling: pairs of ranks at halving distances exchange half of the remaining elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from alray.planning.prediction.all_reduce import LinkCost
from alray.runtime.channel.all_reduce import AllReduce


class HalvingDoublingAllReduce(AllReduce):
    """Cost 2 log2(n) a + 2m b (n-1)/n if n is a power of two: the bytes of a ring in fewer messages.

    From Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (2005), section
    4.5. Let p be the largest power of two that is at most n. The first n-p odd ranks send their tensors to the even
    ranks before them and get the whole result at the end, which costs 2(a + m b) more. Each part is summed completely
    on one rank and sent from there, so no two ranks add up the same part in different orders.
    """

    name = "halving_doubling"

    @staticmethod
    def seconds(n: int, m: float, link: LinkCost) -> float:
        ranks = 1 << (n.bit_length() - 1)
        fold = 2 * (link.latency_s + m * link.s_per_byte) if n > ranks else 0.0
        return fold + 2 * math.log2(ranks) * link.latency_s + 2 * m * link.s_per_byte * (ranks - 1) / ranks

    def _sum(self, tensor: torch.Tensor) -> None:
        if self._is_folded:
            self._exchange(send=[(tensor, self.rank - 1)])
            self._exchange(receive=[(tensor, self.rank - 1)])
            return
        if self._has_folded:
            arrived = self._spare_like(tensor)
            self._exchange(receive=[(arrived, self.rank + 1)])
            tensor += arrived
        bounds = [position * tensor.numel() // self._participants for position in range(self._participants + 1)]
        self._halve(tensor, bounds)
        self._double(tensor, bounds)
        if self._has_folded:
            self._exchange(send=[(tensor, self.rank + 1)])

    def _gather(self, rows: torch.Tensor) -> None:
        flat, length = rows.view(-1), rows.shape[1]
        if self._is_folded:
            self._exchange(send=[(rows[self.rank], self.rank - 1)])
            self._exchange(receive=[(flat, self.rank - 1)])
            return
        if self._has_folded:
            self._exchange(receive=[(rows[self.rank + 1], self.rank + 1)])
        # A position has its row and the row of the rank that was folded into it.
        self._double(
            flat, [self._rank_at(position) * length for position in range(self._participants)] + [flat.numel()]
        )
        if self._has_folded:
            self._exchange(send=[(flat, self.rank + 1)])

    def _halve(self, tensor: torch.Tensor, bounds: Sequence[int]) -> None:
        """Afterwards position v has the complete sums of the elements bounds[v] to bounds[v+1]."""
        distance = self._participants // 2
        while distance >= 1:
            kept_half = self._position & -distance  # the first position of the half to which this position belongs
            sent_half = kept_half ^ distance
            kept = tensor[bounds[kept_half] : bounds[kept_half + distance]]
            sent = tensor[bounds[sent_half] : bounds[sent_half + distance]]
            arrived = self._spare_like(kept)
            partner = self._rank_at(self._position ^ distance)
            self._exchange(receive=[(arrived, partner)], send=[(sent, partner)])
            kept += arrived
            distance //= 2

    def _double(self, tensor: torch.Tensor, bounds: Sequence[int]) -> None:
        """Before, position v has the elements bounds[v] to bounds[v+1]; afterwards every position has all elements."""
        distance = 1
        while distance < self._participants:
            had = self._position & -distance
            lacked = had ^ distance
            has = tensor[bounds[had] : bounds[had + distance]]
            lacks = tensor[bounds[lacked] : bounds[lacked + distance]]
            partner = self._rank_at(self._position ^ distance)
            self._exchange(receive=[(lacks, partner)], send=[(has, partner)])
            distance *= 2

    @property
    def _participants(self) -> int:
        """Number of ranks that take part in halving and doubling, a power of two."""
        return 1 << (self.size.bit_length() - 1)

    @property
    def _folds(self) -> int:
        return self.size - self._participants

    @property
    def _is_folded(self) -> bool:
        return self.rank < 2 * self._folds and self.rank % 2 == 1

    @property
    def _has_folded(self) -> bool:
        return self.rank < 2 * self._folds and self.rank % 2 == 0

    @property
    def _position(self) -> int:
        """This rank's number among the ranks that take part."""
        return self.rank // 2 if self.rank < 2 * self._folds else self.rank - self._folds

    def _rank_at(self, position: int) -> int:
        return 2 * position if position < self._folds else position + self._folds
