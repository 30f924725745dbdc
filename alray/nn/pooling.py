"""Averaging feature maps over exact windows; a backward pass that is deterministic on every device."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from alray.nn.shape import Shape


class WindowPool(nn.Module):
    """`[N, C, H, W] -> [N, C, min(H, size), min(W, size)]` by averages over windows that do not overlap.

    A window is `H // size` high; the last one takes the rest. `AdaptiveAvgPool2d` is not used: its windows overlap and
    its backward pass on CUDA is not deterministic.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        height, width = maps.shape[-2:]
        rows, columns = min(height, self.size), min(width, self.size)
        if height % rows == 0 and width % columns == 0:
            window = (height // rows, width // columns)
            if window == (1, 1):
                return maps
            averaged: torch.Tensor = functional.avg_pool2d(maps, window)
            return averaged
        return _average(_average(maps, 2, rows), 3, columns)


def _average(maps: torch.Tensor, axis: int, windows: int) -> torch.Tensor:
    length = maps.shape[axis]
    window = length // windows
    if length % windows == 0:
        even: torch.Tensor = maps.unflatten(axis, (windows, window)).mean(axis + 1)
        return even
    whole = maps.narrow(axis, 0, window * (windows - 1)).unflatten(axis, (windows - 1, window)).mean(axis + 1)
    rest = maps.narrow(axis, window * (windows - 1), length - window * (windows - 1)).mean(axis, keepdim=True)
    return torch.cat([whole, rest], axis)


class Features(nn.Module):
    """A vector per sample from whatever a block gives: maps are averaged and flattened, the rest is flattened."""

    def __init__(self, input: Shape, pool: int | None) -> None:
        super().__init__()
        maps = len(input) == 3
        self.pool = WindowPool(pool) if maps and pool is not None else None
        self.width = input.elements
        if maps and pool is not None:
            self.width = input[0] * min(input[1], pool) * min(input[2], pool)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        if self.pool is not None:
            s = self.pool(s)
        return s.flatten(1)
