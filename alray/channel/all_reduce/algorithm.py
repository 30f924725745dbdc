"""What every all-reduce offers: a sum that ends in the same bits on every rank, and a gather along the same routes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import ClassVar, final

import torch
import torch.distributed as dist

from alray.channel.point_to_point import lost_neighbour, wait_for
from alray.errors import ChannelError

Part = tuple[torch.Tensor, int]
"""A contiguous tensor, and the rank it goes to or comes from."""

Operation = Callable[[list[torch.Tensor], int, int], dist.Work]
"""A group's `send` or `recv`: tensors, peer, tag."""


class AllReduce(ABC):
    """One algorithm over one process group of n ranks, any n >= 1.

    `group` is what `dist.new_group` gives; a bare `dist.ProcessGroupGloo` serves as well, also in threads of one
    process. Only one call may be under way in a group at a time, and every rank makes the same calls in the same order.

    Costs in the docstrings are seconds for m bytes, with latency a of a message and b seconds a byte.
    """

    name: ClassVar[str]
    bytes_sent: int
    """Payload this rank has sent so far."""

    def __init__(self, group: dist.ProcessGroup, *, timeout_s: float) -> None:
        """timeout_s: seconds a peer may be silent before `ChannelError` names it."""
        self.group = group
        self.rank, self.size = group.rank(), group.size()
        self.bytes_sent = 0
        self._timeout = timedelta(seconds=timeout_s)
        self._spare = torch.empty(0, dtype=torch.uint8)

    @final
    def sum(self, tensor: torch.Tensor) -> None:
        """Replace a flat tensor of equal length and dtype on all ranks by its sum over the ranks, in place.

        The additions are made in one fixed order and in the tensor's dtype: every rank ends in the same bits, integers
        are exact, and floats are within n*eps*sum|x| of the true sum. Raises `ChannelError` where a peer is lost.
        """
        if tensor.ndim != 1 or not tensor.is_contiguous():
            raise ChannelError(
                f"an all-reduce takes one flat contiguous tensor, not one of shape {tuple(tensor.shape)}",
                mend="pack what is to be summed into one buffer",
            )
        if self.size == 1 or tensor.numel() == 0:
            return
        if self._is_carried(tensor):
            self._sum(tensor)
        else:
            staged = tensor.cpu()
            self._sum(staged)
            tensor.copy_(staged)

    @final
    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """The flat tensors of all ranks, of equal length and dtype, as rows of a new tensor of shape (n, length)."""
        carried = self._is_carried(own)
        rows = own.new_empty((self.size, own.numel()), device=own.device if carried else "cpu")
        rows[self.rank].copy_(own)
        if self.size > 1 and own.numel() > 0:
            self._gather(rows)
        return rows.to(own.device)

    @abstractmethod
    def _sum(self, tensor: torch.Tensor) -> None:
        """`sum` among two ranks or more, of at least one element, on a device the group carries."""

    @abstractmethod
    def _gather(self, rows: torch.Tensor) -> None:
        """Fill in the rows of the other ranks; row `rank` is there."""

    def _is_carried(self, tensor: torch.Tensor) -> bool:
        """Whether the group moves the tensor from where it is; gloo reads and writes host memory only."""
        return tensor.device.type == "cpu" or dist.get_backend(self.group) == "nccl"

    def _spare_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Memory of the tensor's shape, dtype and device to receive into, kept from call to call."""
        nbytes = tensor.numel() * tensor.element_size()
        if self._spare.numel() < nbytes or self._spare.device != tensor.device:
            self._spare = torch.empty(nbytes, dtype=torch.uint8, device=tensor.device)
        return self._spare[:nbytes].view(tensor.dtype)

    def _exchange(self, *, receive: Sequence[Part] = (), send: Sequence[Part] = ()) -> None:
        """Receive and send these parts at once; returns when all have arrived, and all that is sent may change again.

        Parts without elements do not travel: both ends know the sizes. Raises `ChannelError` with the peer's rank.
        """
        receive = [part for part in receive if part[0].numel() > 0]
        send = [part for part in send if part[0].numel() > 0]
        if not receive and not send:
            return
        if (receive or send)[0][0].device.type == "cpu":
            self._exchange_one_by_one(receive, send)
        else:
            self._exchange_as_batch(receive, send)
        self.bytes_sent += sum(tensor.numel() * tensor.element_size() for tensor, _ in send)

    def _exchange_one_by_one(self, receive: Sequence[Part], send: Sequence[Part]) -> None:
        """Over gloo: receives are posted first, so that what arrives goes straight to its place."""
        under_way: list[tuple[str, dist.Work]] = []
        for tensor, peer in receive:
            under_way.append(self._post(self._edge(peer, self.rank), self.group.recv, tensor, peer))
        for tensor, peer in send:
            under_way.append(self._post(self._edge(self.rank, peer), self.group.send, tensor, peer))
        for edge, work in under_way:
            wait_for(work, self._timeout, edge)

    def _post(self, edge: str, operation: Operation, tensor: torch.Tensor, peer: int) -> tuple[str, dist.Work]:
        try:
            # Messages of a pair of ranks arrive in the order sent: one tag does for all.
            return edge, operation([tensor], peer, 0)
        except RuntimeError as error:
            raise lost_neighbour(edge, error) from error

    def _exchange_as_batch(self, receive: Sequence[Part], send: Sequence[Part]) -> None:
        """Over NCCL, where two ranks that both send first would wait for each other unless it knows of all parts."""
        operations = [
            *(dist.P2POp(dist.irecv, tensor, group=self.group, group_peer=peer) for tensor, peer in receive),
            *(dist.P2POp(dist.isend, tensor, group=self.group, group_peer=peer) for tensor, peer in send),
        ]
        peers = ", ".join(str(peer) for peer in sorted({peer for _, peer in (*receive, *send)}))
        edge = f"between rank {self.rank} and rank {peers} of the {self.name} all-reduce"
        try:
            works = dist.batch_isend_irecv(operations)
        except RuntimeError as error:
            raise lost_neighbour(edge, error) from error
        for work in works:
            wait_for(work, self._timeout, edge)

    def _edge(self, source: int, target: int) -> str:
        return f"rank {source} -> rank {target} of the {self.name} all-reduce"
