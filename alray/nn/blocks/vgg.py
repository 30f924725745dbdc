"""The VGG block: 3 x 3 convolutions, each with batch norm and ReLU, then optionally a halving."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from alray.errors import SpecError
from alray.nn.blocks.registry import register
from alray.nn.shape import Shape


@register("vgg")
def build(input: Shape, *, channels: Sequence[int], pool: bool = False) -> nn.Module:
    """`[N, C, H, W] -> [N, channels[-1], H, W]`, or half of H and W (rounded down) with `pool`.

    Convolutions have padding 1 and no bias; batch norm follows, then ReLU (Thesis, VGG-AL).
    """
    if len(input) != 3:
        raise SpecError(
            f"block `vgg` takes images (channels, height, width), but its input is {tuple(input)}",
            mend="put it on image data, before any block that flattens",
        )
    if pool and min(input[1:]) < 2:
        raise SpecError(
            f"block `vgg` cannot halve maps of {input[1]} x {input[2]}",
            mend="drop `pool`, or raise `data.image_size`",
        )
    layers: list[nn.Module] = []
    width = input[0]
    for size in channels:
        layers += [
            nn.Conv2d(width, size, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(size),
            nn.ReLU(inplace=True),
        ]
        width = size
    if pool:
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)
