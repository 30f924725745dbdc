"""The mlp block: several linear layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from alray.models.linear_layers import linear_layers
from alray.models.shape import Shape


def build(input: Shape, *, widths: Sequence[int], activation: str = "relu", dropout: float = 0.0) -> nn.Module:
    """`[N, T, D] -> [N, T, widths[-1]]` for sequences, `[N, ...] -> [N, widths[-1]]` for anything else.

    Each layer is linear, then the activation, then dropout.
    """
    return linear_layers("mlp", input, widths, activation, dropout)
