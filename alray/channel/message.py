"""What travels over an edge: a fixed-size header, then the tensors, in one flat buffer."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

import torch

from alray.errors import ChannelError


class MessageKind(IntEnum):
    """What a message is for."""

    TRAIN = 1  # a mini-batch, upwards
    CUT = 2  # a marker after a mini-batch: evaluate, checkpoint, stop
    EVALUATE = 3  # an evaluation batch, upwards
    ROUTE = 4  # decoded labels of an evaluation batch, downwards


class CutFlag(IntEnum):
    """Bits of a cut: what every stage does after the mini-batch the cut follows."""

    EVALUATE = 1
    CHECKPOINT = 2
    STOP = 4


@dataclass
class Message:
    """One message.

    `step` is the mini-batch, 1 being the first of a run, or for EVALUATE and ROUTE the evaluation batch, from 0.
    `count` goes with a cut that evaluates: how many evaluation batches follow. `slot` belongs to the channel: the
    buffer the tensors lie in. `more`: the rest of its tensors is to come (`Sender.begin`).
    """

    kind: MessageKind
    step: int
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    flags: int = 0
    count: int = 0
    slot: int | None = None
    more: bool = False


ALIGNMENT = 64
"""Tensors start at multiples of this many bytes, as torch's own allocations do: kernels may choose by alignment."""

_NAMES = ("s", "t", "labels", "mask", "lengths", "route", "h", "c")
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
_ENTRY = struct.Struct(f"{3 + _MAX_DIMS}q")  # name, dtype, number of dimensions, sizes
_FIXED = struct.Struct("7q")  # magic, kind, step, flags, count, whether there is more, number of tensors
_MAGIC = 0x616C726179  # "alray"


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


HEADER_BYTES = aligned(_FIXED.size + len(_NAMES) * _ENTRY.size)


def packed_bytes(tensor_bytes: list[int]) -> int:
    """Bytes of a message whose tensors have these sizes."""
    return HEADER_BYTES + sum(aligned(nbytes) for nbytes in tensor_bytes)


class Slot:
    """A flat uint8 buffer that messages are written into, or read from, one after another.

    Most have the layout of the one before: the places of their tensors are kept and found again.
    """

    def __init__(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer
        self._content: memoryview = buffer.numpy().data
        self._layout: tuple[tuple[str, torch.dtype, torch.Size], ...] | None = None
        self._entries = b""  # of that layout, as they are in the header
        self._places: dict[str, torch.Tensor] = {}
        self.nbytes = 0  # of the last message

    def write(self, message: Message, *, edge: str) -> int:
        """Write a message; returns how many bytes of the buffer are to be sent.

        Raises `ChannelError` where the message does not fit, which would end the receiving process, or holds what a
        header cannot say. Nothing is written then.
        """
        tensors = message.tensors
        layout = tuple([(name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()])
        if layout != self._layout:
            entries = _entries(tensors, edge)
            needed = packed_bytes([tensor.numel() * tensor.element_size() for tensor in tensors.values()])
            if needed > self._buffer.numel():
                shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
                raise ChannelError(
                    f"edge {edge}: {message.kind.name.lower()} {message.step} ({shapes}) is {needed} bytes, "
                    f"the edge was laid out for {self._buffer.numel()}",
                    mend="a block gave a larger output than it did on the meta device; its output shape must be fixed",
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
            message.more,
            len(tensors),
        )
        self._content[_FIXED.size : _FIXED.size + len(self._entries)] = self._entries
        for name, place in self._places.items():
            place.copy_(tensors[name])
        return self.nbytes

    def read(self, *, edge: str) -> Message:
        """Read a message; its tensors are views of the buffer, in default strides.

        Sizes come from the header alone, so what a longer message left behind in the buffer is never seen.
        """
        magic, kind, step, flags, count, more, num_tensors = _FIXED.unpack_from(self._content)
        if magic != _MAGIC:
            raise ChannelError(
                f"edge {edge}: what arrived is not an alray message",
                mend="the stages of one run must be of one version of alray",
            )
        entries = bytes(self._content[_FIXED.size : _FIXED.size + num_tensors * _ENTRY.size])
        if entries != self._entries:
            self._lay_out(_layout(entries), entries)
        # Whoever gets a tensor may call it by another shape, or have it require a gradient: it is theirs alone.
        tensors = {name: place.view(place.shape) for name, place in self._places.items()}
        return Message(MessageKind(kind), step, tensors, flags=flags, count=count, more=bool(more))

    def _lay_out(self, layout: tuple[tuple[str, torch.dtype, torch.Size], ...], entries: bytes) -> None:
        self._places = {}
        offset = HEADER_BYTES
        for name, dtype, shape in layout:
            nbytes = shape.numel() * dtype.itemsize
            self._places[name] = self._buffer[offset : offset + nbytes].view(dtype).view(shape)
            offset += aligned(nbytes)
        self._layout, self._entries, self.nbytes = layout, entries, offset


def _entries(tensors: dict[str, torch.Tensor], edge: str) -> bytes:
    """What the header says of these tensors."""
    entries = b""
    for name, tensor in tensors.items():
        if tensor.ndim > _MAX_DIMS:
            raise ChannelError(
                f"edge {edge}: `{name}` has {tensor.ndim} dimensions, an edge carries at most {_MAX_DIMS}",
                mend="have the block flatten some of them",
            )
        if tensor.dtype not in _DTYPES:
            raise ChannelError(
                f"edge {edge}: `{name}` has values of {tensor.dtype}, which no edge carries",
                mend="have the block give values of the type of its input, in evaluation too",
            )
        sizes = [*tensor.shape, *[0] * (_MAX_DIMS - tensor.ndim)]
        entries += _ENTRY.pack(_NAMES.index(name), _DTYPES.index(tensor.dtype), tensor.ndim, *sizes)
    return entries


def _layout(entries: bytes) -> tuple[tuple[str, torch.dtype, torch.Size], ...]:
    """What they stand for."""
    return tuple(
        (_NAMES[name], _DTYPES[dtype], torch.Size(sizes[:ndim]))
        for name, dtype, ndim, *sizes in _ENTRY.iter_unpack(entries)
    )
