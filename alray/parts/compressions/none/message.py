"""Messages between components as they are."""

from __future__ import annotations

import torch

from alray.models.message_compression import MessageCompression
from alray.models.shape import Shape


class UncompressedMessages(MessageCompression):
    """Nothing is changed."""

    changes = False

    def packed(self, shape: Shape) -> Shape:
        return shape

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        return values

    def unpack(self, packed: torch.Tensor, shape: Shape) -> torch.Tensor:
        return packed
