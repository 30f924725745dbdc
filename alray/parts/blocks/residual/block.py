"""The residual block of a ResNet: basic blocks of two convolutions with a shortcut."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from alray.models.inputs import require_image
from alray.models.shape import Shape

Shortcut = Literal["3x3", "1x1"]


def build(input: Shape, *, channels: int, layers: int, stride: int = 1, shortcut: Shortcut = "3x3") -> nn.Module:
    """`[N, C, H, W] -> [N, channels, ceil(H / stride), ceil(W / stride)]`: `layers` basic blocks, the first strided."""
    width, _, _ = require_image("residual", input)
    blocks = [BasicBlock(width, channels, stride=stride, shortcut=shortcut)]
    blocks += [BasicBlock(channels, channels, stride=1, shortcut=shortcut) for _ in range(layers - 1)]
    return nn.Sequential(*blocks)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, each with batch norm, and a shortcut: `relu(convolutions(s) + shortcut(s))`.

    He et al. 2016, section 3.3. The shortcut is the identity if the shape stays the same. Otherwise it is a strided
    convolution with batch norm: 3 x 3 in the thesis's code, 1 x 1 in He et al.'s option B and in Shallue et al. 2019.
    No convolution has a bias.
    """

    def __init__(self, channels_in: int, channels_out: int, *, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            _convolution(channels_in, channels_out, size=3, stride=stride),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
            _convolution(channels_out, channels_out, size=3, stride=1),
            nn.BatchNorm2d(channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                _convolution(channels_in, channels_out, size=3 if shortcut == "3x3" else 1, stride=stride),
                nn.BatchNorm2d(channels_out),
            )
        self.activation = nn.ReLU(inplace=True)

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        # The sum is a new tensor, so the in-place ReLU does not change the input.
        result: torch.Tensor = self.activation(self.convolutions(s) + self.shortcut(s))
        return result


def _convolution(channels_in: int, channels_out: int, *, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, kernel_size=size, stride=stride, padding=size // 2, bias=False)
