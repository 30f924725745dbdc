"""What travels over an edge: a fixed-size header, then the tensors, in one flat buffer."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from enum import IntEnum

import torch

from alray.errors import ChannelError


class Kind(IntEnum):
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
    buffer the tensors lie in.
    """

    kind: Kind
    step: int
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    flags: int = 0
    count: int = 0
    slot: int | None = None


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
_ENTRY = 3 + _MAX_DIMS  # name, dtype, number of dimensions, sizes
_FIXED = 6  # magic, kind, step, flags, count, number of tensors
_MAGIC = 0x616C726179  # "alray"


def aligned(nbytes: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


HEADER_BYTES = aligned(8 * (_FIXED + len(_NAMES) * _ENTRY))


def packed_bytes(tensor_bytes: list[int]) -> int:
    """Bytes of a message whose tensors have these sizes."""
    return HEADER_BYTES + sum(aligned(nbytes) for nbytes in tensor_bytes)


def pack(message: Message, buffer: torch.Tensor, *, edge: str) -> int:
    """Write a message into a flat uint8 buffer; returns how many of its bytes are to be sent.

    Raises `ChannelError` where the message does not fit, which would end the receiving process, or holds what a header
    cannot say. Nothing is written then.
    """
    header = [_MAGIC, message.kind, message.step, message.flags, message.count, len(message.tensors)]
    places: list[tuple[torch.Tensor, int, int]] = []
    offset = HEADER_BYTES
    for name, tensor in message.tensors.items():
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
        header += [_NAMES.index(name), _DTYPES.index(tensor.dtype), tensor.ndim, *sizes]
        nbytes = tensor.numel() * tensor.element_size()
        places.append((tensor, offset, nbytes))
        offset += aligned(nbytes)
    if offset > buffer.numel():
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in message.tensors.items())
        raise ChannelError(
            f"edge {edge}: {message.kind.name.lower()} {message.step} ({shapes}) is {offset} bytes, "
            f"the edge was laid out for {buffer.numel()}",
            mend="a block gave a larger output than it did on the meta device; its output shape must be fixed",
        )
    struct.pack_into(f"{len(header)}q", buffer.numpy().data, 0, *header)
    for tensor, start, nbytes in places:
        buffer[start : start + nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return offset


def unpack(buffer: torch.Tensor, *, edge: str) -> Message:
    """Read a message; its tensors are views of the buffer, in default strides.

    Sizes come from the header alone, so what a longer message left behind in the buffer is never seen.
    """
    content = buffer.numpy().data
    magic, kind, step, flags, count, num_tensors = struct.unpack_from(f"{_FIXED}q", content)
    if magic != _MAGIC:
        raise ChannelError(
            f"edge {edge}: what arrived is not an alray message",
            mend="the stages of one run must be of one version of alray",
        )
    words = struct.unpack_from(f"{num_tensors * _ENTRY}q", content, 8 * _FIXED)
    tensors: dict[str, torch.Tensor] = {}
    offset = HEADER_BYTES
    for index in range(num_tensors):
        entry = words[index * _ENTRY : (index + 1) * _ENTRY]
        dtype, shape = _DTYPES[entry[1]], tuple(entry[3 : 3 + entry[2]])
        nbytes = math.prod(shape) * dtype.itemsize
        tensors[_NAMES[entry[0]]] = buffer[offset : offset + nbytes].view(dtype).view(shape)
        offset += aligned(nbytes)
    return Message(Kind(kind), step, tensors, flags=flags, count=count)
