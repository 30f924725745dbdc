"""Noisy digits, and a small U-Net that finds their ink."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from alray.data.source import Normalisation, TensorSet

IGNORED = 255


class Ink:
    """The 1,797 handwritten digits, 1 x 8 x 8 pixels, with noise. Each pixel is ink, or none; where it is half of
    either, it has no class."""

    classes = ("paper", "ink")
    normalisation = Normalisation(mean=(8.0,), std=(8.0,))

    def __init__(self, noise: float = 4.0) -> None:
        digits = torch.tensor(load_digits().images, dtype=torch.float32)
        drawn = torch.Generator().manual_seed(0)
        noisy = (digits + noise * torch.randn(digits.shape, generator=drawn)).unsqueeze(1)
        labels = (digits > 8).long().masked_fill((digits - 8).abs() < 2, IGNORED)
        order = torch.randperm(len(digits), generator=drawn)
        self._parts = {"test": order[:360], "train": order[360:]}
        self._sets = {name: TensorSet(noisy[part], labels[part]) for name, part in self._parts.items()}

    def open(self, split: str) -> TensorSet:
        return self._sets[split]


class UNet(nn.Module):
    """Down to 4 x 4 pixels and up again, with one connection over it: [N, 1, 8, 8] -> [N, 2, 8, 8]."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.inner = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.last = nn.Conv2d(2 * width, 2, 3, padding=1)

    def forward(self, s: Tensor) -> Tensor:
        s = self.first(s).relu()
        inner = self.inner(self.down(s).relu()).relu()
        scores: Tensor = self.last(torch.cat([s, self.up(inner).relu()], 1))
        return scores
