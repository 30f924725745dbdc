"""Resizing of images, the same for training data and for pictures to predict."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear, antialiased. images: [..., channels, height, width] uint8 or floating point; size: pixels."""
    if tuple(images.shape[-2:]) == size:
        return images
    batch = images.reshape(-1, *images.shape[-3:])
    with torch.no_grad():
        resized = functional.interpolate(batch, size=size, mode="bilinear", antialias=True)
    return resized.reshape(*images.shape[:-2], *size).contiguous()
