"""The all-reduce of the process group itself: that of gloo or NCCL."""

from __future__ import annotations

import torch
import torch.distributed as dist

from alray.planning.prediction.all_reduce import LinkCost, backend_seconds
from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.point_to_point import naming


class BackendAllReduce(AllReduce):
    """`dist.all_reduce` unchanged.

    gloo reduces each part of the tensor on one rank and sends the result around, so all ranks get the same bits here,
    too (a test checks it). gloo does not report what it sends. `bytes_sent` is therefore computed: a ring, which is
    gloo's algorithm, sends 2m (n-1)/n bytes for m bytes.
    """

    name = "backend"

    @staticmethod
    def seconds(n: int, m: float, link: LinkCost) -> float:
        return backend_seconds(n, m, link)

    def _sum(self, tensor: torch.Tensor) -> None:
        edge = self._all_ranks()
        with naming(edge):
            work = self.group.allreduce(tensor, dist.ReduceOp.SUM, self._timeout)
        self._wait_for(work, edge, times=2)  # the operation's timeout says more
        self.bytes_sent += 2 * (self.size - 1) * tensor.numel() * tensor.element_size() // self.size

    def _gather(self, rows: torch.Tensor) -> None:
        edge = self._all_ranks()
        own = rows[self.rank].clone()
        with naming(edge):
            work = self.group.allgather(list(rows), own, self._timeout)
        self._wait_for(work, edge, times=2)  # the operation's timeout says more
        self.bytes_sent += (self.size - 1) * own.numel() * own.element_size()

    def _all_ranks(self) -> str:
        return f"rank {self.rank} with its {self.size - 1} peers of the backend's all-reduce"
