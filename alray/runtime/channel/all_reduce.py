"""The interface of an all-reduce: a sum that gives the same bits on every rank, and a gather over the same routes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar, final

import torch
import torch.distributed as dist

from alray.config.made import Load, class_of, making, no_user_code
from alray.config.sections.all_reduce import ALL_REDUCES, AllReduceSection
from alray.core import accelerator
from alray.core.errors import ChannelError
from alray.planning.prediction.all_reduce import LinkCost
from alray.runtime.channel.point_to_point import naming, wait_for

Part = tuple[torch.Tensor, int]
"""A contiguous tensor in host memory, and the rank to which it goes or from which it comes."""

_KEY = "replicas.all_reduce"


class AllReduce(ABC):
    """One algorithm over one process group of n ranks, n >= 1.

    `group` comes from `dist.new_group`, or is a `dist.ProcessGroupGloo`, which also works between threads of one
    process, or a `dist.ProcessGroupNCCL`. At most one call may be under way in a group, and every rank must make the
    same calls in the same order. gloo reads and writes host memory only, NCCL that of GPUs only, so other tensors
    are copied there and back.

    The docstrings of the algorithms give the cost in seconds for m bytes, with a latency of a seconds per message and
    b seconds per byte.
    """

    name: ClassVar[str]
    """As messages call it."""
    bytes_sent: int
    """Payload bytes that this rank has sent so far."""

    def __init__(self, group: dist.ProcessGroup, *, timeout_s: float, holds_host: bool = True) -> None:
        """A subclass also takes the further keys of the spec's section, by name. A group of NCCL works on the current
        GPU of the calling thread.

        Args:
            timeout_s: seconds to wait for a peer before `ChannelError` is raised with its rank.
            holds_host: whether the calling thread waits for the peers; with gloo it always does. If not, the current
                stream of the GPU waits, and the driver finds out that a peer is lost or silent. With a time limit a
                thread asks NCCL again and again, and computes nothing meanwhile.
        """
        self.group = group
        self.rank = group.rank()
        self.size = group.size()
        self.bytes_sent = 0
        self._timeout = timedelta(seconds=timeout_s)
        self._spare = torch.empty(0, dtype=torch.uint8)
        # The GPU of the thread that makes this: another thread, as that for communication, has another current GPU.
        self._works_on = torch.device("cpu")
        if group.name() == "nccl":
            self._works_on = accelerator.current()
        self._in_stream = not holds_host and accelerator.is_accelerator(self._works_on)

    @final
    def sum(self, tensor: torch.Tensor) -> None:
        """Replace a flat tensor by its sum over the ranks, in place. Length and dtype are the same on all ranks.

        The additions run in one fixed order and in the tensor's dtype. So every rank gets the same bits, integers are
        exact, and floats are within n*eps*sum|x| of the true sum. Raises `ChannelError` if a peer is lost.
        """
        if tensor.ndim != 1 or not tensor.is_contiguous():
            raise ChannelError(
                f"an all-reduce needs a flat contiguous tensor, got shape {tuple(tensor.shape)}",
                hint="pack the values into one flat buffer",
            )
        if self.size == 1 or tensor.numel() == 0:
            return
        if tensor.device == self._works_on:
            self._sum(tensor)
        else:
            staged = tensor.to(self._works_on)
            self._sum(staged)
            tensor.copy_(staged)

    @final
    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """Return the flat tensors of all ranks as rows of a new tensor of shape (n, length).

        Length and dtype are the same on all ranks.
        """
        rows = own.new_empty((self.size, own.numel()), device=self._works_on)
        rows[self.rank].copy_(own)
        if self.size > 1 and own.numel() > 0:
            self._gather(rows)
        return rows.to(own.device)

    @staticmethod
    @abstractmethod
    def seconds(n: int, m: float, link: LinkCost) -> float:
        """The time of a sum of m bytes among n >= 2 ranks over a link (`alray.planning.prediction.all_reduce`)."""

    @abstractmethod
    def _sum(self, tensor: torch.Tensor) -> None:
        """`sum` for at least two ranks and one element, where the group works."""

    @abstractmethod
    def _gather(self, rows: torch.Tensor) -> None:
        """Fill in the rows of the other ranks. Row `rank` is already filled."""

    def _spare_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return flat memory of the tensor's size and dtype to receive into. It is kept from call to call."""
        nbytes = tensor.numel() * tensor.element_size()
        if self._spare.numel() < nbytes:
            self._spare = torch.empty(nbytes, dtype=torch.uint8)
        return self._spare[:nbytes].view(tensor.dtype)

    def _exchange(self, *, receive: Sequence[Part] = (), send: Sequence[Part] = ()) -> None:
        """Receive and send these parts at once; return when all have arrived and the sent tensors may change again.

        Parts without elements are skipped: both ends know the sizes. Raises `ChannelError` with the peer's rank.
        """
        # Receives are posted first, so that gloo writes each arriving part directly into its memory.
        receives = [(self.group.recv, *part, self._edge(part[1], self.rank)) for part in receive if part[0].numel()]
        sends = [(self.group.send, *part, self._edge(self.rank, part[1])) for part in send if part[0].numel()]
        under_way = []
        for operation, tensor, peer, edge in (*receives, *sends):
            with naming(edge):
                # Messages between two ranks arrive in the order of sending, so one tag is enough.
                under_way.append((operation([tensor], peer, 0), edge))
        for work, edge in under_way:
            self._wait_for(work, edge)
        self.bytes_sent += sum(tensor.numel() * tensor.element_size() for tensor, _ in send)

    def _wait_for(self, work: dist.Work, edge: str, *, times: int = 1) -> None:
        """Wait for an operation of the group.

        Args:
            times: the time limit, in that of the group.
        """
        wait_for(work, None if self._in_stream else times * self._timeout, edge)

    def _edge(self, source: int, target: int) -> str:
        return f"rank {source} -> rank {target} of the {self.name} all-reduce"


def all_reduce_class(section: AllReduceSection, load: Load = no_user_code) -> type[AllReduce]:
    """The algorithm that a spec names. Raises SpecError if a class of the user's cannot be loaded."""
    found: type[AllReduce] = class_of(ALL_REDUCES, section, AllReduce, load, key=_KEY)
    return found


def make_all_reduce(
    section: AllReduceSection, group: dist.ProcessGroup, *, timeout_s: float, load: Load = no_user_code
) -> AllReduce:
    """The all-reduce that a spec names, over a group (see `AllReduce`).

    Raises SpecError if a class of the user's cannot be loaded or made.
    """
    kind = all_reduce_class(section, load)
    called = "it is called as Class(group, timeout_s=timeout_s, **fields) with the further keys of its section"
    with making(f"all-reduce `{section.kind}`", called, key=_KEY, kind=kind):
        return kind(group, timeout_s=timeout_s, **section.fields)
