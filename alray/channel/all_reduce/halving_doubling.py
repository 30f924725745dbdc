"""Recursive halving and doubling: pairs of ranks at halving distances exchange half of the remaining elements."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from alray.channel.all_reduce.algorithm import AllReduce


class HalvingDoubling(AllReduce):
    """Cost 2 log2(n) a + 2m b (n-1)/n if n is a power of two: the bytes of a ring in fewer messages.

    From Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH" (2005), section
    4.5. Let p be the largest power of two that is at most n. The first n-p odd ranks send their tensors to the even
    ranks before them and get the whole result at the end, which costs 2(a + m b) more. Each part is summed completely
    on one rank and sent from there, so no two ranks add up the same part in different orders.
    """

    name = "halving_doubling"

    def _sum(self, tensor: torch.Tensor) -> None:
        if self._is_folded:
            self._exchange(send=[(tensor, self.rank - 1)])
            self._exchange(receive=[(tensor, self.rank - 1)])
            return
        if self._has_folded:
            arrived = self._spare_like(tensor)
            self._exchange(receive=[(arrived, self.rank + 1)])
            tensor += arrived
        bounds = [place * tensor.numel() // self._places for place in range(self._places + 1)]
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
        # A place holds its own row and the row of the rank that was folded into it.
        self._double(flat, [self._rank_at(place) * length for place in range(self._places)] + [flat.numel()])
        if self._has_folded:
            self._exchange(send=[(flat, self.rank + 1)])

    def _halve(self, tensor: torch.Tensor, bounds: Sequence[int]) -> None:
        """Afterwards place v has the complete sums of the elements bounds[v] to bounds[v+1]."""
        distance = self._places // 2
        while distance >= 1:
            kept = self._place & -distance  # the first place of the half to which this place belongs
            given = kept ^ distance
            keeps = tensor[bounds[kept] : bounds[kept + distance]]
            gives = tensor[bounds[given] : bounds[given + distance]]
            arrived = self._spare_like(keeps)
            partner = self._rank_at(self._place ^ distance)
            self._exchange(receive=[(arrived, partner)], send=[(gives, partner)])
            keeps += arrived
            distance //= 2

    def _double(self, tensor: torch.Tensor, bounds: Sequence[int]) -> None:
        """Before, place v has the elements bounds[v] to bounds[v+1]; afterwards every place has all elements."""
        distance = 1
        while distance < self._places:
            had = self._place & -distance
            lacked = had ^ distance
            has = tensor[bounds[had] : bounds[had + distance]]
            lacks = tensor[bounds[lacked] : bounds[lacked + distance]]
            partner = self._rank_at(self._place ^ distance)
            self._exchange(receive=[(lacks, partner)], send=[(has, partner)])
            distance *= 2

    @property
    def _places(self) -> int:
        """Number of ranks that take part in halving and doubling, a power of two."""
        return 1 << (self.size.bit_length() - 1)

    @property
    def _folds(self) -> int:
        return self.size - self._places

    @property
    def _is_folded(self) -> bool:
        return self.rank < 2 * self._folds and self.rank % 2 == 1

    @property
    def _has_folded(self) -> bool:
        return self.rank < 2 * self._folds and self.rank % 2 == 0

    @property
    def _place(self) -> int:
        """This rank's number among the ranks that take part."""
        return self.rank // 2 if self.rank < 2 * self._folds else self.rank - self._folds

    def _rank_at(self, place: int) -> int:
        return 2 * place if place < self._folds else place + self._folds
