"""The linear block: one layer."""

from __future__ import annotations

from torch import nn

from alray.models.linear_layers import linear_layers
from alray.models.shape import Shape


def build(input: Shape, *, width: int, activation: str = "relu") -> nn.Module:
    """`[N, T, D] -> [N, T, width]` for sequences, `[N, ...] -> [N, width]` for anything else: one layer."""
    return linear_layers("linear", input, (width,), activation, dropout=0.0)
