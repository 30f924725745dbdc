"""The interface of a compression of what passes between components, and those that change the type alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from alray.config.made import Load, class_of, making
from alray.config.sections.compression import COMPRESSIONS, CompressionSection
from alray.models.shape import Shape


class MessageCompression(ABC):
    """How a tensor `[N, ...]` of floats is packed, and unpacked again.

    A sample is packed by itself: what becomes of it does not depend on the other samples, so it is the same in a
    micro-batch, in a replica's share and alone. Packing and unpacking give the same bits wherever they run.

    A class of your own, `pipeline.messages: {compression: {kind: "python:mine.Coarse", levels: 3}}`, is called as
    `Coarse(levels=3)` and defines `packed`, `pack` and `unpack`; also `rounded`, if its networks are to be exported and
    the operations of these two cannot be.
    """

    changes: ClassVar[bool] = True
    """Whether values that were packed may be others when they are unpacked."""
    over_positions: bool = False
    """Whether what becomes of a position of a sequence `[T, D]` depends on other positions."""

    @abstractmethod
    def packed(self, shape: Shape) -> Shape:
        """Return the shape of a packed sample. Its elements may be of any type that `alray.runtime.channel.message`
        carries, such as uint8.

        Args:
            shape: of the sample.
        """

    @abstractmethod
    def pack(self, values: torch.Tensor) -> torch.Tensor:
        """Return the packed tensor `[N, *packed(shape)]`.

        Args:
            values: `[N, *shape]`, detached.
        """

    @abstractmethod
    def unpack(self, packed: torch.Tensor, shape: Shape) -> torch.Tensor:
        """Return the tensor `[N, *shape]` of `shape.dtype`, row-major, of what `pack` gave. It is new memory unless
        `changes` is False."""

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        """Return what `unpack` gives of what `pack` gives, to the last bit."""
        return self.unpack(self.pack(values), Shape(values.shape[1:], values.dtype))


class HalfMessages(MessageCompression):
    """Values are rounded to the nearest ones of `type_sent`."""

    type_sent: ClassVar[torch.dtype]

    def packed(self, shape: Shape) -> Shape:
        return Shape(shape, self.type_sent)

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.type_sent)

    def unpack(self, packed: torch.Tensor, shape: Shape) -> torch.Tensor:
        return packed.to(shape.dtype)


def make_message_compression(section: CompressionSection, load: Load, *, key: str) -> MessageCompression:
    """The compression that a spec names.

    Raises SpecError if a class of the user's cannot be loaded or made.

    Args:
        key: of the spec, for messages.
    """
    kind: type[MessageCompression] = class_of(
        COMPRESSIONS, section, MessageCompression, load, key=key, implementation=section.of_messages
    )
    called = "it is called as Class(**fields) with the further keys"
    with making(f"compression `{section.kind}`", called, key=key, kind=kind):
        return kind(**section.fields)


def as_bytes(values: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes: `[..., n]` gives `[..., n * itemsize]` uint8."""
    return values.contiguous().view(torch.uint8)


def from_bytes(packed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What `as_bytes` took, of these bytes; it is a copy, which is aligned as its type asks for."""
    return packed.clone(memory_format=torch.contiguous_format).view(dtype)
