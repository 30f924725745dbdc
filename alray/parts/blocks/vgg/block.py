"""The VGG block: 3 x 3 convolutions, each with batch norm and ReLU, then optionally a 2 x 2 max pool."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from alray.core.errors import SpecError
from alray.models.inputs import require_image
from alray.models.shape import Shape


def build(input: Shape, *, channels: Sequence[int], pool: bool = False) -> nn.Module:
    """`[N, C, H, W] -> [N, channels[-1], H, W]`; with `pool`, H and W are halved and rounded down.

    Convolutions have padding 1 and no bias; batch norm and ReLU follow (thesis, VGG-AL).
    """
    width, *size = require_image("vgg", input)
    if pool and min(size) < 2:
        raise SpecError(
            f"block `vgg` cannot halve maps of {size[0]} x {size[1]}",
            hint="drop `pool`, or raise `data.image_size`",
        )
    layers: list[nn.Module] = []
    for wider in channels:
        layers += [
            nn.Conv2d(width, wider, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(inplace=True),
        ]
        width = wider
    if pool:
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)
