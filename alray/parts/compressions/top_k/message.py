"""Messages between components that hold the largest values only."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from alray.models.message_compression import MessageCompression, as_bytes, from_bytes
from alray.models.shape import Shape
from alray.parts.compressions.top_k.number import number_sent


class TopKMessages(MessageCompression):
    """Of each row the values of largest magnitude, with their positions; the receiver takes the others for 0.

    A row is a sample or, in a sequence [T, D], a position of it, so that a position says nothing of the others. Rows
    have their values, then as many positions: of 2 bytes where a row has at most 2^15 values, else of 4.
    """

    def __init__(self, *, fraction: float = 0.01) -> None:
        """
        Args:
            fraction: share of a row, above 0 and at most 1. At least one value is sent.
        """
        self._fraction = fraction

    def packed(self, shape: Shape) -> Shape:
        rows, width = _rows(shape)
        return Shape((rows, self._sent(width) * (shape.dtype.itemsize + _positions(width).itemsize)), torch.uint8)

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        rows, width = _rows(values.shape[1:])
        largest, chosen = self._largest(values.reshape(len(values), rows, width))
        return torch.cat([as_bytes(largest), as_bytes(chosen.to(_positions(width)))], -1)

    def unpack(self, packed: torch.Tensor, shape: Shape) -> torch.Tensor:
        rows, width = _rows(shape)
        of_values = self._sent(width) * shape.dtype.itemsize
        largest = from_bytes(packed[..., :of_values], shape.dtype)
        chosen = from_bytes(packed[..., of_values:], _positions(width)).long()
        found = torch.zeros(len(packed), rows, width, dtype=shape.dtype, device=packed.device)
        return found.scatter_(-1, chosen, largest).view(len(packed), *shape)

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        rows, width = _rows(values.shape[1:])
        matrix = values.flatten(1).unflatten(1, (rows, width))
        largest, chosen = self._largest(matrix)
        return torch.zeros_like(matrix).scatter(-1, chosen, largest).view_as(values)

    def _largest(self, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The values that are sent, and their positions, of `[N, rows, width]`."""
        chosen = matrix.abs().topk(self._sent(matrix.shape[-1]), sorted=False).indices
        return matrix.gather(-1, chosen), chosen

    def _sent(self, width: int) -> int:
        return number_sent(self._fraction, width)


def _rows(shape: Sequence[int]) -> tuple[int, int]:
    """How many rows a sample has, and how many values a row has."""
    return (shape[0], shape[1]) if len(shape) == 2 else (1, math.prod(shape))


def _positions(width: int) -> torch.dtype:
    return torch.int16 if width <= torch.iinfo(torch.int16).max + 1 else torch.int32
