"""What passes between a component and the next one, compressed as `pipeline.messages` says.

Compression belongs to the boundary between two components, not to the one between two stages: what a component sends is
packed at its end, and unpacked at the start of the next one, whether or not an edge lies between them. So an edge
carries the packed bytes, and every partition gives the same bits.

What passes up are the outputs of encoders; in a chain of backpropagation their gradients pass down. Labels, masks and
other whole numbers are never compressed, nor is what a method sends with the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from alray.config.made import Load
from alray.config.sections.compression import CompressionSection, Messages
from alray.models.encoder import Tensors
from alray.models.message_compression import MessageCompression, make_message_compression
from alray.models.shape import Shape


class Passing:
    """What passes one boundary in one direction."""

    def __init__(self, compression: MessageCompression, shapes: Mapping[str, Shape]) -> None:
        """
        Args:
            shapes: of one sample of what passes in training, by name. What passes in inference alone is not compressed.
        """
        self._compression = compression
        floats = [name for name, shape in shapes.items() if shape.dtype.is_floating_point]
        self._names = floats if compression.changes else []
        self._shapes = shapes
        self.saved_bytes = 0
        """How many bytes fewer the packed tensors had so far than the tensors themselves."""

    @property
    def over_positions(self) -> bool:
        """As `MessageCompression.over_positions`."""
        return self._compression.over_positions

    def packed(self, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
        """Shapes of one sample as it is packed, by name."""
        return {
            name: self._compression.packed(shape) if name in self._names else shape for name, shape in shapes.items()
        }

    def pack(self, tensors: Tensors) -> Tensors:
        """The tensors as they are sent."""
        packed = dict(tensors)
        for name in self._compressed(tensors):
            values = self._given(name, tensors)
            packed[name] = self._compression.pack(values)
            self.saved_bytes += values.nbytes - packed[name].nbytes
        return packed

    def unpack(self, packed: Tensors) -> Tensors:
        """What `pack` was given, but for what is lost, row-major."""
        tensors = dict(packed)
        for name in self._compressed(packed):
            shape = self._shapes[name]
            if name == "s" and "mask" in packed:  # a mini-batch of texts is as wide as its longest one
                shape = shape.of_length(packed["mask"].shape[1])
            tensors[name] = self._compression.unpack(packed[name], shape)
        return tensors

    def rounded(self, tensors: Tensors) -> Tensors:
        """What `unpack` gives of what `pack` gives, to the last bit."""
        found = dict(tensors)
        for name in self._compressed(tensors):
            found[name] = self._compression.rounded(self._given(name, tensors))
        return found

    def _given(self, name: str, tensors: Tensors) -> torch.Tensor:
        """What is to be packed: zeros after the end of a text, which nobody reads and which must not decide a scale."""
        values, mask = tensors[name], tensors.get("mask")
        if name != "s" or mask is None:
            return values
        return values.masked_fill(~mask[(..., *[None] * (values.ndim - mask.ndim))], 0)

    def _compressed(self, tensors: Tensors) -> list[str]:
        return [name for name in self._names if name in tensors]


class Boundary:
    """The boundary after one component. The components on both sides have one each, which may lie in two processes.

    Attributes:
        up: what the lower component sends.
        down: gradients, which the upper one sends.
    """

    def __init__(
        self,
        messages: Messages,
        shapes: Mapping[str, Shape],
        load: Load,
    ) -> None:
        """
        Args:
            shapes: of one sample of what goes up with the samples in training.
        """

        def passing(section: CompressionSection, key: str) -> Passing:
            compression = make_message_compression(section, load, key=f"pipeline.messages.{key}")
            return Passing(compression, shapes)

        self.up = passing(messages.compression, "compression")
        self.down = passing(messages.of_gradients, "gradients")

    @property
    def over_positions(self) -> bool:
        """Whether what becomes of a position of a sequence depends on other positions."""
        return self.up.over_positions or self.down.over_positions


def across(tensors: Tensors, up: Passing, down: Passing) -> Tensors:
    """What the next component of a chain of backpropagation gets in the same process: outputs rounded, and rounded too
    what comes back of their gradients.

    Args:
        up: of the lower component.
        down: of the upper one.
    """
    mask = {name: tensors[name] for name in ("mask",) if name in tensors}
    passed = dict(tensors)
    for name, value in tensors.items():
        if value.is_floating_point():
            passed[name] = _Across.apply(value, name, mask, up, down)
    return passed


class _Across(torch.autograd.Function):
    """One tensor on its way over a boundary."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, name: str, mask: Tensors, up: Passing, down: Passing) -> torch.Tensor:
        ctx.passes, ctx.down = name, down  # `ctx.name` is torch's, the name of the operation
        return up.rounded({name: value, **mask})[name].view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return ctx.down.rounded({ctx.passes: gradient})[ctx.passes], None, None, None, None


class Rounding(nn.Module):
    """A boundary on a route of inference."""

    def __init__(self, up: Passing) -> None:
        super().__init__()
        self.up = up

    def forward(self, tensors: Tensors) -> Tensors:
        """What the upper component gets of what the lower one gave."""
        return self.up.rounded(tensors)
