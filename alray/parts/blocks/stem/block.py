"""The stem of a ResNet: one convolution that turns pictures into feature maps."""

from __future__ import annotations

from torch import nn

from alray.models.inputs import require_image
from alray.models.shape import Shape


def build(input: Shape, *, channels: int) -> nn.Module:
    """`[N, C, H, W] -> [N, channels, H, W]`: 3 x 3, padding 1, no bias; batch norm; ReLU.

    This is the form for small pictures, which are not halved (He et al. 2016, section 4.2; the first component of the
    thesis's ResNet18-AL).
    """
    width, _, _ = require_image("stem", input)
    return nn.Sequential(
        nn.Conv2d(width, channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
    )
