"""Values as whole numbers of four or eight bits: levels between the least and the largest value of a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch

from alray.models.message_compression import MessageCompression, as_bytes, from_bytes
from alray.models.shape import Shape

Scale = Literal["tensor", "token"]


class LevelMessages(MessageCompression):
    """Affine quantisation with a zero point, as Jacob et al., "Quantization and training of neural networks for
    efficient integer-arithmetic-only inference" (CVPR 2018), section 2.1, have it:

        step  = (max(x, 0) - min(x, 0)) / (levels - 1)        over a group of values
        zero  = round(-min(x, 0) / step)
        level = round(x / step) + zero, within 0 ... levels - 1
        x'    = (level - zero) * step

    0 stays 0, and a group without negative values, as behind ReLU, uses all levels. Rounding is to the nearest level.
    As zero is a whole number, a group of both signs reaches beyond one end of its levels by up to half a step.

    A packed sample has the steps of its groups, in the type of the values, then their zero points, a byte each, then
    the levels, a byte each or, of 16 levels, two in a byte, the first one in the lower bits.
    """

    levels: ClassVar[Literal[16, 256]]

    def __init__(self, *, scale: Scale = "tensor") -> None:
        """
        Args:
            scale: the groups, of each sample: all its values, or of a sequence those of each position.
        """
        self._scale: Scale = scale
        self._top = self.levels - 1
        self._in_a_byte = 2 if self.levels == 16 else 1
        self.over_positions = scale != "token"

    def packed(self, shape: Shape) -> Shape:
        count = math.prod(shape)
        groups = count // self._group_size(shape)
        return Shape((groups * (shape.dtype.itemsize + 1) + -(-count // self._in_a_byte),), torch.uint8)

    def pack(self, values: torch.Tensor) -> torch.Tensor:
        levels, zero, step = self._levels(self._grouped(values))
        codes = levels.to(torch.uint8).flatten(1)
        if self._in_a_byte == 2:
            codes = torch.nn.functional.pad(codes, (0, codes.shape[1] % 2))
            codes = codes[:, ::2] + codes[:, 1::2] * self.levels
        return torch.cat([as_bytes(step), zero.to(torch.uint8), codes], 1)

    def unpack(self, packed: torch.Tensor, shape: Shape) -> torch.Tensor:
        size = self._group_size(shape)
        groups = math.prod(shape) // size
        of_steps = groups * shape.dtype.itemsize
        step = from_bytes(packed[:, :of_steps], shape.dtype)
        zero = packed[:, of_steps : of_steps + groups].to(shape.dtype)
        count = groups * size
        levels = packed[:, of_steps + groups :]
        if self._in_a_byte == 2:
            second = levels // self.levels
            levels = torch.stack([levels - second * self.levels, second], -1).flatten(1)[:, :count]
        grouped = _values(levels.to(shape.dtype).unflatten(1, (groups, size)), zero, step)
        values: torch.Tensor = grouped.flatten(1).unflatten(1, tuple(shape))
        return values

    def rounded(self, values: torch.Tensor) -> torch.Tensor:
        return _values(*self._levels(self._grouped(values))).view(values.shape)

    def _levels(self, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Levels `[N, groups, size]`, zero points and steps `[N, groups]`, all in the type of the values.

        Args:
            groups: the values, `[N, groups, size]`.
        """
        least = groups.amin(-1).clamp(max=0)
        # A step that is not finite is sent as it is, so that what is unpacked is not finite either.
        step = (groups.amax(-1).clamp(min=0) - least) / self._top
        divisor = torch.where(step > 0, step, torch.ones_like(step))
        zero = (-least / divisor).round()
        levels = (groups / divisor.unsqueeze(-1)).add_(zero.unsqueeze(-1)).round_()
        return levels.clamp_(0, self._top), zero, step

    def _group_size(self, shape: Sequence[int]) -> int:
        """How many values of a sample share a step."""
        return shape[1] if self._scale == "token" and len(shape) == 2 else math.prod(shape)

    def _grouped(self, values: torch.Tensor) -> torch.Tensor:
        """`[N, groups, size]` of `[N, *shape]`."""
        groups: torch.Tensor = values.flatten(1).unflatten(1, (-1, self._group_size(values.shape[1:])))
        return groups


def _values(levels: torch.Tensor, zero: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """x' of levels, in their memory."""
    return levels.sub_(zero.unsqueeze(-1)).mul_(step.unsqueeze(-1))
