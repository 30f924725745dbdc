"""A message over an edge: a header of fixed size, then the tensors, in one flat buffer."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

import torch

from alray.core import accelerator
from alray.core.errors import ChannelError, MessageError


class MessageKind(IntEnum):
    """The purpose of a message."""

    TRAIN = 1  # a mini-batch, upwards
    CUT = 2  # a marker after a mini-batch: evaluate, checkpoint, stop
    EVALUATE = 3  # an evaluation batch, upwards
    ROUTE = 4  # decoded labels of an evaluation batch, downwards
    COPY = 5  # a part of the last component, from the last stage to another one
    GRADIENT = 6  # gradients of the tensors of a training message, downwards


class CutFlag(IntEnum):
    """Bits of a cut: what every stage does after the mini-batch before it."""

    EVALUATE = 1
    CHECKPOINT = 2
    STOP = 4
    RATE = 8  # the metric has changed the learning rate


@dataclass
class Message:
    """One message.

    `step` is the number of the mini-batch, from 1; for EVALUATE and ROUTE that of the evaluation batch, from 0;
    for COPY that of the mini-batch before it, 0 for initial weights.
    `virtual` is the virtual stage that a message of training goes to, and `micro_batch` the number of its micro-batch,
    both from 0.
    `tensors` are at most 8, with names of 1 to 16 ASCII characters. `count` belongs to a cut that evaluates: the
    number of evaluation batches that follow. `slot` belongs to the channel: the buffer in which the tensors lie.
    `more` means that further tensors of this message follow (`Sender.begin`). `copied` also belongs to the channel:
    a GPU sets it when it has copied the tensors from their buffer. `arrives_s` is the time by `time.monotonic` at
    which a slow link hands the message over; 0: at once.
    """

    kind: MessageKind
    step: int
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    flags: int = 0
    count: int = 0
    virtual: int = 0
    micro_batch: int = 0
    slot: int | None = None
    more: bool = False
    copied: torch.Event | None = None
    arrives_s: float = 0.0


ALIGNMENT = 64
"""Tensors start at multiples of this many bytes, as torch's allocations do. Kernels may depend on alignment."""

MOST_TENSORS = 8
MOST_NAME_BYTES = 16
_DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
_MAX_DIMS = 6
_ENTRY = struct.Struct(f"{MOST_NAME_BYTES}s2i{_MAX_DIMS}q")  # name, dtype, number of dimensions, sizes
# Magic, kind, step, flags, count, virtual stage, micro-batch, whether there is more, number of tensors, arrival.
_FIXED = struct.Struct("9qd")
_MAGIC = 0x616C726179  # "alray"
_FIRST_WORD = struct.Struct("q")


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


MOST_LAYOUT_BYTES = MOST_TENSORS * _ENTRY.size
"""The largest result of `packed_layout`."""

HEADER_BYTES = aligned(_FIXED.size + MOST_TENSORS * _ENTRY.size)


def packed_bytes(tensor_bytes: list[int]) -> int:
    """Bytes of a message whose tensors have these sizes."""
    return HEADER_BYTES + sum(aligned(nbytes) for nbytes in tensor_bytes)


class Slot:
    """A flat uint8 buffer into which messages are written, or from which they are read, one after another.

    Most messages have the layout of the one before: the views of their tensors are kept and used again.
    """

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer
        self._content: memoryview = buffer.numpy().data
        self._layout: tuple[tuple[str, torch.dtype, torch.Size], ...] | None = None
        self._entries = b""  # of that layout, as they are in the header
        self._views: dict[str, torch.Tensor] = {}
        self.nbytes = 0  # of the last message

    def write(self, message: Message, *, edge: str) -> int:
        """Write a message; returns how many bytes of the buffer to send.

        Raises MessageError, and writes nothing, if the message does not fit the buffer (that would end the receiving
        process) or if the header cannot describe its tensors.
        """
        tensors = message.tensors
        layout = tuple([(name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()])
        if layout != self._layout:
            entries = packed_layout(tensors, edge)
            needed = packed_bytes([tensor.numel() * tensor.element_size() for tensor in tensors.values()])
            if needed > self._buffer.numel():
                shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
                raise MessageError(
                    f"edge {edge}: {message.kind.name.lower()} {message.step} ({shapes}) is {needed} bytes, "
                    f"the edge was laid out for {self._buffer.numel()}",
                    hint="a block gave a larger output than it did on the meta device; its output shape must be fixed",
                )
            self._lay_out(layout, entries)
        _FIXED.pack_into(
            self._content,
            0,
            _MAGIC,
            message.kind,
            message.step,
            message.flags,
            message.count,
            message.virtual,
            message.micro_batch,
            message.more,
            len(tensors),
            message.arrives_s,
        )
        self._content[_FIXED.size : _FIXED.size + len(self._entries)] = self._entries
        for name, view in self._views.items():
            view.copy_(tensors[name], non_blocking=True)
        from_gpu = next((tensor.device for tensor in tensors.values() if not tensor.is_cpu), None)
        if from_gpu is not None:
            accelerator.wait_for_current_stream(from_gpu)  # the buffer is handed on next
        return self.nbytes

    def clear(self) -> None:
        """Forget the message in the buffer, so that `written` reports the next one."""
        self._content[: _FIRST_WORD.size] = bytes(_FIRST_WORD.size)

    @property
    def written(self) -> bool:
        """Whether a message has come into the buffer since `clear`; its last bytes may still be on their way."""
        return bool(_FIRST_WORD.unpack_from(self._content)[0])

    def read(self, *, edge: str) -> Message:
        """Read a message; its tensors are views of the buffer, in default strides.

        Sizes come from the header, so the remains of a longer message in the buffer are never read.
        """
        magic, kind, step, flags, count, virtual, micro_batch, more, num_tensors, arrives_s = _FIXED.unpack_from(
            self._content
        )
        if magic != _MAGIC:
            raise ChannelError(
                f"edge {edge}: what arrived is not an alray message",
                hint="the stages of one run must be of one version of alray",
            )
        entries = bytes(self._content[_FIXED.size : _FIXED.size + num_tensors * _ENTRY.size])
        if entries != self._entries:
            self._lay_out(layout_of(entries), entries)
        # New views each time: the receiver may change a tensor's shape, or have it require a gradient.
        tensors = {name: view.view(view.shape) for name, view in self._views.items()}
        return Message(
            MessageKind(kind),
            step,
            tensors,
            flags=flags,
            count=count,
            virtual=virtual,
            micro_batch=micro_batch,
            more=bool(more),
            arrives_s=arrives_s,
        )

    def _lay_out(self, layout: tuple[tuple[str, torch.dtype, torch.Size], ...], entries: bytes) -> None:
        self._views = {}
        offset = HEADER_BYTES
        for name, dtype, shape in layout:
            nbytes = shape.numel() * dtype.itemsize
            self._views[name] = self._buffer[offset : offset + nbytes].view(dtype).view(shape)
            offset += aligned(nbytes)
        self._layout = layout
        self._entries = entries
        self.nbytes = offset


def packed_layout(tensors: dict[str, torch.Tensor], edge: str) -> bytes:
    """The header's entries for these tensors. Raises MessageError where it has no room for them."""
    if len(tensors) > MOST_TENSORS:
        raise MessageError(
            f"edge {edge}: a message of {len(tensors)} tensors ({', '.join(tensors)}); an edge carries at most "
            f"{MOST_TENSORS}",
            hint="have the method send fewer tensors with the labels",
        )
    entries = b""
    for name, tensor in tensors.items():
        if not name.isascii() or not 0 < len(name) <= MOST_NAME_BYTES:
            raise MessageError(
                f"edge {edge}: the name of tensor `{name}` is not 1 to {MOST_NAME_BYTES} ASCII characters",
                hint="have the method give it another name",
            )
        if tensor.ndim > _MAX_DIMS:
            raise MessageError(
                f"edge {edge}: `{name}` has {tensor.ndim} dimensions, an edge carries at most {_MAX_DIMS}",
                hint="have the block flatten some of them",
            )
        if tensor.dtype not in _DTYPES:
            raise MessageError(
                f"edge {edge}: `{name}` has values of {tensor.dtype}, which no edge carries",
                hint="have the block give values of the type of its input, in evaluation too",
            )
        sizes = [*tensor.shape, *[0] * (_MAX_DIMS - tensor.ndim)]
        entries += _ENTRY.pack(name.encode("ascii"), _DTYPES.index(tensor.dtype), tensor.ndim, *sizes)
    return entries


def layout_of(entries: bytes) -> tuple[tuple[str, torch.dtype, torch.Size], ...]:
    """Name, type and shape of each tensor in the header's entries."""
    return tuple(
        (name.rstrip(b"\0").decode("ascii"), _DTYPES[dtype], torch.Size(sizes[:ndim]))
        for name, dtype, ndim, *sizes in _ENTRY.iter_unpack(entries)
    )
