"""Networks of torchvision for small grey pictures."""

from __future__ import annotations

from torch import nn
from torchvision import models


def resnet18(classes: int) -> nn.Module:
    """torchvision's ResNet-18 with a first layer for one channel, and without the max pool after it."""
    network: nn.Module = models.resnet18(num_classes=classes)
    network.conv1 = nn.Conv2d(1, 64, kernel_size=3, padding=1, bias=False)
    network.maxpool = nn.Identity()
    return network
