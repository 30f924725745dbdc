"""Edges from one GPU to another: torch.distributed's point-to-point operations over NCCL.

NCCL wants to know what comes, sizes included. So each message has two parts. Its header, with the layout of its
tensors, goes over an edge of host memory. That edge also holds back a sender that is too fast. The tensors go from GPU
to GPU, in the order of the header. Each direction has its own communicator, because operations on one wait for
each other. A message in two parts has two layouts, and each is followed by its tensors.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist

from alray.runtime.channel.edge import Receiver, Sender, Waiting
from alray.runtime.channel.message import MOST_LAYOUT_BYTES, Message, layout_of, packed_bytes, packed_layout
from alray.runtime.channel.point_to_point import naming, wait_for

HEADER_CAPACITY = packed_bytes([MOST_LAYOUT_BYTES, MOST_LAYOUT_BYTES])
"""Bytes of the largest message that carries a header, in one part or in two."""
_SENDS, _RECEIVES = 0, 1  # ranks in the edge's group
_LAYOUT, _REST = "layout", "rest"  # of the tensors of a message, or of its first part; of its second part


@dataclass(eq=False)
class NcclSender(Sender):
    """Gives the GPU the tensors of each message to send. The host does not wait for it.

    Attributes:
        headers: the edge for headers.
        group: of the two stages, in which this one has rank 0.
    """

    edge: str
    headers: Sender
    group: dist.ProcessGroup
    device: torch.device
    timeout_s: float

    def __post_init__(self) -> None:
        self.bytes_sent = 0
        self._under_way: deque[tuple[dist.Work, torch.Tensor]] = deque()
        self._begun: tuple[torch.Tensor, frozenset[str]] | None = None
        """Layout and names of the tensors that `begin` has sent of the message under way."""

    def connect(self) -> None:
        """Make the communicator. Collective: the receiver calls it, too, and each waits for the other."""
        sent = torch.zeros(1, device=self.device)
        self._post(sent).wait()  # until then its memory is not used for another tensor

    def begin(self, message: Message) -> Waiting[None]:
        layout = self._layout(message.tensors)
        yield from self.headers.begin(replace(message, tensors={_LAYOUT: layout}))
        self._begun = (layout, frozenset(message.tensors))
        self._send_all(message.tensors)

    def send(self, message: Message) -> Waiting[None]:
        begun, self._begun = self._begun, None
        header = replace(message, tensors={})
        rest = message.tensors
        if begun is None:
            header.tensors = {_LAYOUT: self._layout(rest)}
        else:
            layout, names = begun
            rest = {name: tensor for name, tensor in message.tensors.items() if name not in names}
            header.tensors = {_LAYOUT: layout, _REST: self._layout(rest)}
        yield from self.headers.send(header)
        self._send_all(rest)

    def _layout(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.tensor(list(packed_layout(tensors, self.edge)), dtype=torch.uint8)

    def _send_all(self, tensors: dict[str, torch.Tensor]) -> None:
        for tensor in tensors.values():
            if tensor.numel() > 0:
                sent = tensor.to(self.device).contiguous()
                self._under_way.append((self._post(sent), sent))
                self.bytes_sent += sent.nbytes
        while self._under_way and self._under_way[0][0].is_completed():
            self._under_way.popleft()  # until here the tensor's memory is not used for another one

    def _post(self, tensor: torch.Tensor) -> dist.Work:
        with naming(self.edge):
            return self.group.send([tensor], _RECEIVES, 0)

    def flush(self) -> Waiting[None]:
        yield from self.headers.flush()
        while self._under_way:
            wait_for(self._under_way[0][0], timedelta(seconds=self.timeout_s), self.edge)
            self._under_way.popleft()

    def close(self) -> None:
        self.headers.close()
        self.group.abort()


@dataclass(eq=False)
class NcclReceiver(Receiver):
    """Reads a header, and has the GPU receive what it describes. The GPU waits for the tensors, not the host.

    Attributes:
        headers: the edge for headers.
        group: of the two stages, in which this one has rank 1.
    """

    edge: str
    headers: Receiver
    group: dist.ProcessGroup
    device: torch.device

    def connect(self) -> None:
        """Make the communicator; see `NcclSender.connect`."""
        self._take(torch.zeros(1, device=self.device))

    def receive(self) -> Waiting[Message]:
        message = yield from self.headers.receive()
        layouts, message.tensors = message.tensors, {}
        for layout in layouts.values():  # two where the edge of the headers does not split messages
            message.tensors |= self._receive_all(layout)
        return message

    def complete(self, message: Message) -> Waiting[None]:
        if message.more:
            yield from self.headers.complete(message)
            message.tensors |= self._receive_all(message.tensors.pop(_REST))

    def _receive_all(self, layout: torch.Tensor) -> dict[str, torch.Tensor]:
        tensors = {}
        for name, dtype, shape in layout_of(bytes(layout.tolist())):
            tensors[name] = torch.empty(shape, dtype=dtype, device=self.device)
            if shape.numel() > 0:
                self._take(tensors[name])
        return tensors

    def _take(self, tensor: torch.Tensor) -> None:
        with naming(self.edge):
            self.group.recv([tensor], _SENDS, 0).wait()  # over NCCL the current stream waits, not the host

    def release(self, message: Message) -> None:
        self.headers.release(message)

    def waiting(self) -> int:
        return self.headers.waiting()

    def close(self) -> None:
        self.headers.close()
        self.group.abort()
