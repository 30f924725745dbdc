"""Gathers rows of all ranks while the stage continues to compute."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from alray.core.errors import ChannelError
from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.exchange import CommunicationThread, Exchange


class RowGather(Exchange[torch.Tensor]):
    """Gives every rank the rows of all ranks, in rank order. The ranks may have different numbers of rows."""

    def __init__(self, over: AllReduce, thread: CommunicationThread) -> None:
        super().__init__(over, thread)
        self._counts: Sequence[int] = ()

    def start(self, own: torch.Tensor, counts: Sequence[int]) -> None:
        """Start gathering `own`, shape (rows of this rank, width), which may change from here on.

        Args:
            counts: the number of rows of each rank.

        Raises:
            ChannelError: if the rows before are still being gathered, or if `own` has another number of rows.
        """
        if self._under_way is not None:
            raise ChannelError("rows are still being gathered", hint="call `wait` before the next `start`")
        if len(own) != counts[self._over.rank]:
            raise ChannelError(
                f"this rank has {len(own)} rows, and is to give {counts[self._over.rank]}",
                hint="pass as many rows as this rank's count",
            )
        self._counts = counts
        # All ranks send tensors of one length.
        padded = own.new_zeros((max(counts), own.shape[1]), device="cpu")
        padded[: len(own)].copy_(own)
        self._under_way = self._thread.submit(self._gather, padded)

    def wait(self) -> torch.Tensor:
        """Return the rows of all ranks, shape (all rows, width), in host memory.

        Raises `ChannelError` if a peer was lost, or if nothing was started.
        """
        if self._under_way is None:
            raise ChannelError("no rows are being gathered", hint="call `start` before `wait`")
        try:
            padded = self._under_way.result()
        finally:
            self._under_way = None
        return torch.cat([rows[:count] for rows, count in zip(padded, self._counts, strict=True)])

    def _gather(self, padded: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter()
        rows = self._over.gather(padded.flatten()).view(-1, *padded.shape)
        self.communication_s += time.perf_counter() - began
        return rows
