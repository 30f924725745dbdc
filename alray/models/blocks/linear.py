"""Linear layers: one (`linear`) or several (`mlp`), over flattened samples or over each position of a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from alray.models.blocks.inputs import require_values, zero_padding
from alray.models.blocks.registry import register
from alray.models.readout import with_activation
from alray.models.shape import Shape


@register("linear")
def build_linear(input: Shape, *, width: int, activation: str = "relu") -> nn.Module:
    """`[N, T, D] -> [N, T, width]` for sequences, `[N, ...] -> [N, width]` for anything else: one layer."""
    return _layers("linear", input, (width,), activation, dropout=0.0)


@register("mlp")
def build_mlp(input: Shape, *, widths: Sequence[int], activation: str = "relu", dropout: float = 0.0) -> nn.Module:
    """`[N, T, D] -> [N, T, widths[-1]]` for sequences, `[N, ...] -> [N, widths[-1]]` for anything else.

    Each layer is linear, then the activation, then dropout.
    """
    return _layers("mlp", input, widths, activation, dropout)


def _layers(block: str, input: Shape, widths: Sequence[int], activation: str, dropout: float) -> nn.Module:
    require_values(block, input)
    sequences = len(input) == 2
    width = input[-1] if sequences else input.elements
    layers: list[nn.Module] = []
    for wider in widths:
        layers.append(with_activation(nn.Linear(width, wider), activation))
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
        width = wider
    return PerPosition(layers) if sequences else nn.Sequential(nn.Flatten(), *layers)


class PerPosition(nn.Module):
    """The same layers at every position of a sequence."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            s: [N, T, D].
            mask: [N, T] bool, True where there is a word, None for all. Padded positions give 0.
        """
        return zero_padding(self.layers(s), mask)
