"""From what a block gives to a vector per sample, by backward passes that are deterministic on every device.

Feature maps are averaged over exact windows; sequences over the places that count, or read at an LSTM's final states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

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


Pooling = Literal["mean", "final_states", "last_state"]
"""How a sequence becomes a vector: a block's module says it by its attribute `pooling` ("mean" where there is none)."""


class Features(nn.Module):
    """A vector per sample from whatever a block gives: maps are averaged over windows and flattened, sequences are
    pooled over their places, the rest is flattened."""

    def __init__(self, input: Shape, pool: int | None, pooling: Pooling = "mean") -> None:
        """pool: least windows of a map's height and width, None to leave it whole; pooling: of sequences."""
        super().__init__()
        maps, self.sequences = len(input) == 3, len(input) == 2
        self.pool = WindowPool(pool) if maps and pool is not None else None
        self.pooling = pooling
        self.width = input.elements
        if maps and pool is not None:
            self.width = input[0] * min(input[1], pool) * min(input[2], pool)
        elif self.sequences:
            self.width = input[1] // 2 if pooling == "final_states" else input[1]

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.sequences:
            return _POOLED[self.pooling](s, mask)
        if self.pool is not None:
            s = self.pool(s)
        return s.flatten(1)


def masked_mean(s: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`[N, T, D] -> [N, D]`: the mean over the places that count, all of them without a mask."""
    if mask is None:
        return s.mean(1)
    kept = s.masked_fill(~mask.unsqueeze(2), 0.0)
    return kept.sum(1) / mask.sum(1, keepdim=True)


def final_states(s: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`[N, T, 2H] -> [N, H]`: final state of a bidirectional LSTM's last layer, both directions added up.

    The forward direction (the first half) ends at a row's last place, the backward direction at its first.
    """
    half = s.shape[2] // 2
    return last_state(s[:, :, :half], mask) + s[:, 0, half:]


def last_state(s: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """`[N, T, D] -> [N, D]`: each row at its last place, where an LSTM of one direction has read all of it."""
    if mask is None:
        return s[:, -1]
    rows = torch.arange(s.shape[0], device=s.device)  # not len(s): an exported graph would keep that number
    return s[rows, mask.sum(1) - 1]


_POOLED: dict[Pooling, Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]] = {
    "mean": masked_mean,
    "final_states": final_states,
    "last_state": last_state,
}
