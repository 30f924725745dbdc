"""Linear layers over flattened samples, or over each position of a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from alray.models.inputs import require_values, zero_padding
from alray.models.readout import with_activation
from alray.models.shape import Shape


def linear_layers(block: str, input: Shape, widths: Sequence[int], activation: str, dropout: float) -> nn.Module:
    """Layers over each position of a sequence, or over flattened samples. Each is linear, then the activation, then
    dropout.

    Args:
        block: its name, for messages.
    """
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
